/* What the files of the binding share: a hive as Python holds it.
 *
 * Room: bind (uses the facade, include/hivemind_c.h). The only room with Python.h, and only its limited API of 3.10: one
 * binary serves every later Python. Nothing here is static and changes: each module has its own state, so several
 * interpreters may load it side by side.
 * Threads: everything here holds its interpreter's GIL, except bind_loan_back, which the hive calls on threads of its own.
 * The GIL is let go around whatever may wait.
 * fork(): each object remembers the process it was made in. In another one it raises an error that says so, and frees nothing.
 */
#ifndef HV_BIND_BIND_H
#define HV_BIND_BIND_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include "hivemind_c.h"

#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

/* The buffer protocol joined the limited API in 3.11; its layout in 3.10 is the same. */
#ifndef PyBUF_SIMPLE
typedef struct bufferinfo {
  void *buf;
  PyObject *obj;
  Py_ssize_t len;
  Py_ssize_t itemsize;
  int readonly;
  int ndim;
  char *format;
  Py_ssize_t *shape;
  Py_ssize_t *strides;
  Py_ssize_t *suboffsets;
  void *internal;
} Py_buffer;
#define PyBUF_SIMPLE 0
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyAPI_FUNC(int) PyBuffer_FillInfo(Py_buffer *view, PyObject *object, void *bytes, Py_ssize_t size, int readonly, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);
#endif
#ifndef Py_bf_getbuffer
#define Py_bf_getbuffer 1
#endif

/* ---- errors (py_error.c) ---- */

/* What a program catches: HivemindError and, below it, one class for each kind that Python knows by a name of its own. */
#define BIND_ERROR_MAP(X)                                                                                                          \
  X(GENERAL, "HivemindError")                                                                                                      \
  X(TIMEOUT, "HivemindTimeoutError")                                                                                               \
  X(CONNECTION, "HivemindConnectionError")                                                                                         \
  X(PERMISSION, "HivemindPermissionError")                                                                                         \
  X(VALUE, "HivemindValueError")                                                                                                   \
  X(MEMORY, "HivemindMemoryError")                                                                                                 \
  X(OS, "HivemindOSError")                                                                                                         \
  X(LOOKUP, "HivemindLookupError")                                                                                                 \
  X(CANCELLED, "HivemindCancelledError")                                                                                           \
  X(UNSUPPORTED, "HivemindUnsupportedError")

typedef enum bind_error_kind {
#define BIND_ERROR_ENUM(kind, name) BIND_ERROR_##kind,
  BIND_ERROR_MAP(BIND_ERROR_ENUM)
#undef BIND_ERROR_ENUM
      BIND_ERROR_COUNT
} bind_error_kind;

typedef struct bind_state {
  hv_mem *mem; /* what the binding itself takes; outlives the module as long as a block is held */
  PyTypeObject *node, *future, *parcel, *progress, *averager;
  PyObject *errors[BIND_ERROR_COUNT];
  PyObject *monotonic; /* time.monotonic */
  pid_t pid;           /* the process in which the first node was started; 0: none yet */
  int ending;          /* the program ends: threads other than ending_thread get SystemExit instead of an error about it */
  unsigned long ending_thread;
} bind_state;

/* Makes the exception classes and puts them into the module. 0, or -1 with an exception set. */
int bind_errors_init(PyObject *module, bind_state *state);
/* An exception for an error: its .status and .cause are the codes' names. An error without a sentence gets its status' words. New,
 * or NULL with another one set. */
PyObject *bind_error(bind_state *state, const hv_error *error);
/* Each raises such an exception and returns NULL: for a call's status and what it left in an hv_error, which may be nothing; for a
 * status and its sentence (text may be NULL or empty); or the exception that bind_error made (taken). */
PyObject *bind_raise_why(bind_state *state, hv_status status, const hv_error *error);
PyObject *bind_raise(bind_state *state, hv_status status, const char *text);
PyObject *bind_raise_error(bind_state *state, PyObject *error);

/* ---- arguments (py_error.c, beside what they raise) ---- */

/* Seconds (a number, or None: for good) as milliseconds, rounded up; UINT32_MAX means without limit. 0, or -1 with an exception
 * set. */
int bind_timeout(PyObject *seconds, uint32_t *out_ms);
/* A peer ID in its text form. 0, or -1 with an exception set. */
int bind_peer(bind_state *state, PyObject *text, hv_peer_id *out);
PyObject *bind_peer_text(const hv_peer_id *peer);

/* ---- loans (loan.c) ---- */

/* Bytes of Python's that are lent to the hive until it calls bind_loan_back. */
typedef struct bind_loan bind_loan;

/* Where the hive leaves the loans it gives back; their buffers are released when Python next comes by. Counted under the GIL: by
 * the node and by each loan, so that a loan that comes back even after its node's end finds it. */
typedef struct bind_bay {
  _Atomic(bind_loan *) returned;
  size_t refs;
} bind_bay;

struct bind_loan {
  bind_loan *next; /* in returned */
  bind_bay *bay;
  Py_buffer view;
  PyThread_type_lock event; /* held until the hive gives the bytes back */
  atomic_int back;
  int released; /* view has been released */
  int refs;     /* the hive (later: the list) and the future; under the GIL */
};

bind_bay *bind_bay_new(bind_state *state); /* NULL with an exception set */
void bind_bay_settle(bind_bay *bay);       /* releases the buffers of all loans that have come back */
void bind_bay_release(bind_bay *bay);      /* one reference less; NULL is fine */

/* Takes a buffer out of bytes for a loan. NULL with an exception set. It has one reference. */
bind_loan *bind_loan_new(bind_state *state, bind_bay *bay, PyObject *bytes);
void bind_loan_back(void *loan);         /* the hive's callback: any thread, no GIL */
void bind_loan_settle(bind_loan *loan);  /* releases the buffer if the loan is back; once */
void bind_loan_release(bind_loan *loan); /* one reference less; NULL is fine */
/* Waits for a loan without the GIL; 1: it is back. */
int bind_loan_wait(bind_loan *loan, uint32_t timeout_ms);

/* ---- a node (py_node.c) ---- */

typedef struct bind_node {
  PyObject_HEAD
  hv_hive *hive; /* NULL: finalized */
  pid_t pid;
  bind_bay *bay;
} bind_node;

PyTypeObject *bind_node_type(PyObject *module);
/* 0, or -1 with the error raised that this node cannot be used here. */
int bind_node_check(bind_node *self);

/* ---- a future (py_future.c) ---- */

typedef enum bind_future_kind {
  BIND_FUTURE_PEERS,
  BIND_FUTURE_WAIT,
  BIND_FUTURE_ECHO,
  BIND_FUTURE_SEND,
  BIND_FUTURE_RECEIVE,
  BIND_FUTURE_DHT_STORE,
  BIND_FUTURE_DHT_GET,
  BIND_FUTURE_DHT_LOOK,
  BIND_FUTURE_AVERAGE,
  BIND_FUTURE_STATE_OFFER,
  BIND_FUTURE_STATE_CHANGE,
  BIND_FUTURE_STATE_LOAD
} bind_future_kind;

PyTypeObject *bind_future_type(PyObject *module);
/* What is in a Future of this process, borrowed; NULL with an exception set. */
hv_future *bind_future_inner(bind_state *state, PyObject *object);
/* Takes future and loan (may be NULL), also when it fails. */
PyObject *bind_future_new(bind_state *state, bind_node *node, bind_future_kind kind, hv_future *future, bind_loan *loan);
/* Takes future; raises what status says if there is none. */
PyObject *bind_node_future(bind_node *self, bind_future_kind kind, hv_status status, hv_future *future);

/* ---- the DHT (py_dht.c): methods of a node, its settings, and what their futures become ---- */

PyObject *bind_dht_store(PyObject *node, PyObject *args);
PyObject *bind_dht_get(PyObject *node, PyObject *args);
PyObject *bind_dht_look(PyObject *node, PyObject *ignored);
/* A dict of whole numbers (NULL: none). 0, or -1 with an exception set. */
int bind_dht_settings(PyObject *dict, hv_hive_dht_config *out);
PyObject *bind_dht_stored(hv_span bytes);
PyObject *bind_dht_records(hv_span bytes);
PyObject *bind_dht_state(hv_span bytes);

/* ---- states (py_state.c): methods of a node, and what their futures become ---- */

PyObject *bind_state_offer(PyObject *node, PyObject *args);
PyObject *bind_state_withdraw(PyObject *node, PyObject *args);
PyObject *bind_state_priority(PyObject *node, PyObject *args);
PyObject *bind_state_load(PyObject *node, PyObject *args);
PyObject *bind_state_loaded(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *donor);

/* ---- progress of a run (py_progress.c) ---- */

PyTypeObject *bind_progress_type(PyObject *module);

/* ---- an averager (py_average.c), and what the future of a step becomes ---- */

PyTypeObject *bind_averager_type(PyObject *module);
PyObject *bind_average_done(hv_span bytes);

/* ---- a parcel that came (py_parcel.c): shows a future's bytes through the buffer protocol; read-only, unless they are nobody
 * else's ---- */

PyTypeObject *bind_parcel_type(PyObject *module);
/* Keeps future. */
PyObject *bind_parcel_new(bind_state *state, hv_future *future, hv_span bytes, int writable);

#endif
