/* Declarations shared by the files of the Python extension module _hivemind_c.
 *
 * Room: bind (uses include/hivemind_c.h). The only folder that includes Python.h, with the limited API of 3.10, so that one binary
 * serves every later Python. No static variable changes: each module object has its own bind_state, so several interpreters may
 * load the module.
 * Thread: every function here is called with the GIL held, except bind_loan_back, bind_loan_wait and bind_users_wait. A call that
 * may block releases the GIL meanwhile. Errors: a function that returns an object returns NULL with an exception set; one that
 * returns int returns -1. fork(): each object remembers the process that created it. In a child process its methods raise an error,
 * and it frees nothing.
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

/* ---- types (py_error.c) ---- */

/* Makes a type that belongs to the module, which alone keeps it. 0, or -1 with an exception set. */
int bind_type_add(PyObject *module, PyType_Spec *spec, const char *name);

/* ---- errors (py_error.c) ---- */

/* The exception classes: HivemindError, and subclasses of it that are subclasses of a built-in exception, too. */
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
  hv_mem *mem; /* account of the binding's own memory; exists until its last block is freed */
  PyTypeObject *node, *future, *parcel, *progress, *averager;
  PyObject *errors[BIND_ERROR_COUNT];
  PyObject *monotonic; /* time.monotonic */
  pid_t pid;           /* the process in which the first node was started; 0: none yet */
  int ending;          /* True while the program exits: a thread other than ending_thread gets SystemExit in place of an error */
  unsigned long ending_thread;
} bind_state;

/* Makes the exception classes and puts them into the module. 0, or -1 with an exception set. */
int bind_errors_init(PyObject *module, bind_state *state);
/* A new exception for an error, with the names of its codes as .status and .cause. Without a text it gets the text of its status.
 */
PyObject *bind_error(bind_state *state, const hv_error *error);
/* Each raises an exception and returns NULL. bind_raise_why describes a failed call by its status and its hv_error, which may be
 * empty. bind_raise does so by a status and a text, which may be NULL. bind_raise_error raises an exception that bind_error made,
 * and takes the caller's reference to it. */
PyObject *bind_raise_why(bind_state *state, hv_status status, const hv_error *error);
PyObject *bind_raise(bind_state *state, hv_status status, const char *text);
PyObject *bind_raise_error(bind_state *state, PyObject *error);

/* ---- arguments (py_error.c) ---- */

/* Converts seconds (a number, or None for no limit) to milliseconds, rounded up; no limit is UINT32_MAX. */
int bind_timeout(PyObject *seconds, uint32_t *out_ms);
/* Parses the text form of a peer ID. */
int bind_peer(bind_state *state, PyObject *text, hv_peer_id *out);
PyObject *bind_peer_text(const hv_peer_id *peer);
/* A number of 0 or more, for the format "O&": `out` is an unsigned long long. True if it was one, else an exception is set. */
int bind_whole_number(PyObject *object, void *out);

/* ---- threads in an object (users.c) ---- */

/* Around work without the GIL on what an object owns: closing it waits until nobody is in it. */
typedef struct bind_users {
  size_t n;
  PyThread_type_lock idle; /* held while there are any */
} bind_users;

/* -1: no memory; no exception is set. */
int bind_users_init(bind_users *users);
/* Of a zeroed one too. */
void bind_users_fini(bind_users *users);
void bind_users_enter(bind_users *users);
void bind_users_leave(bind_users *users);
/* Waits, without the GIL, until nobody is in it. */
void bind_users_wait(bind_users *users);

/* ---- loans (loan.c) ---- */

/* A Python buffer that the hive uses until it calls bind_loan_back. */
typedef struct bind_loan bind_loan;

/* The loans of one node that the hive has given back, on threads without the GIL. Their buffers are released by the next
 * bind_bay_settle. The node and each loan hold a reference, so a loan that comes back after the node's end still finds the list. */
typedef struct bind_bay {
  _Atomic(bind_loan *) returned; /* a stack */
  size_t refs;                   /* changed under the GIL */
} bind_bay;

struct bind_loan {
  bind_loan *next; /* in bind_bay.returned */
  bind_bay *bay;
  Py_buffer view;
  PyThread_type_lock event; /* locked until the hive gives the buffer back; bind_loan_wait waits for it */
  atomic_int back;          /* True once the hive has given it back */
  int released;             /* True once `view` was released */
  int refs;                 /* of the hive or bind_bay.returned, and of the future; changed under the GIL */
};

bind_bay *bind_bay_new(bind_state *state);
void bind_bay_settle(bind_bay *bay);  /* releases the buffers of all loans in `returned` */
void bind_bay_release(bind_bay *bay); /* drops one reference; NULL is fine */

/* A loan of the buffer of an object, with one reference. */
bind_loan *bind_loan_new(bind_state *state, bind_bay *bay, PyObject *bytes);
void bind_loan_back(void *loan);         /* callback of the hive: any thread, no GIL */
void bind_loan_settle(bind_loan *loan);  /* releases the buffer if the hive has given it back */
void bind_loan_release(bind_loan *loan); /* drops one reference; NULL is fine */
/* Waits until the hive has given it back; called without the GIL. False: timeout. */
int bind_loan_wait(bind_loan *loan, uint32_t timeout_ms);

/* ---- a node (py_node.c) ---- */

typedef struct bind_node {
  PyObject_HEAD
  hv_hive *hive; /* NULL: finalized */
  pid_t pid;     /* of the process that started it */
  bind_bay *bay;
} bind_node;

PyTypeObject *bind_node_type(PyObject *module);

/* ---- a future (py_future.c) ---- */

/* A kind of future: each file that starts an operation has its own. */
typedef struct bind_future_kind {
  const char *awaited; /* for "timed out after 3 s of waiting for ..." */
  /* Converts the result. NULL: the result is None. */
  PyObject *(*convert)(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *peer);
  int cancel_when_dropped; /* True: a future that Python drops is cancelled, because the operation may never end by itself */
  /* Gives the result of a dropped future back, which Python has not read. NULL: the result is lost. */
  hv_status (*give_back)(hv_hive *hive, hv_future *future);
} bind_future_kind;

PyTypeObject *bind_future_type(PyObject *module);
/* The hv_future in a Future of this process, borrowed. */
hv_future *bind_future_inner(bind_state *state, PyObject *object);
/* Takes future and loan (may be NULL), also when it fails. */
PyObject *bind_future_new(bind_state *state, bind_node *node, const bind_future_kind *kind, hv_future *future, bind_loan *loan);
/* The result's bytes as a bytes object, for bind_future_kind.convert. */
PyObject *bind_future_bytes(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *peer);

/* ---- methods of a node that return a future (py_call.c) ---- */

/* The first step: 0, or -1 with an exception: the node was shut down, or this is another process. */
int bind_node_check(bind_node *self);
/* The last step: a Future of future, which it takes; or an exception for a status other than HV_OK. */
PyObject *bind_node_future(bind_node *self, const bind_future_kind *kind, hv_status status, hv_future *future);

/* ---- methods of a node that use the DHT, and its settings (py_dht.c) ---- */

PyObject *bind_dht_store(PyObject *node, PyObject *args);
PyObject *bind_dht_get(PyObject *node, PyObject *args);
PyObject *bind_dht_look(PyObject *node, PyObject *ignored);
/* Reads settings from a dict of name: integer, or NULL. */
int bind_dht_settings(PyObject *dict, hv_hive_dht_config *out);

/* ---- methods of a node that share training states (py_state.c) ---- */

PyObject *bind_state_offer(PyObject *node, PyObject *args);
PyObject *bind_state_withdraw(PyObject *node, PyObject *args);
PyObject *bind_state_priority(PyObject *node, PyObject *args);
PyObject *bind_state_load(PyObject *node, PyObject *args);
PyObject *bind_state_loading(PyObject *node, PyObject *args);
PyObject *bind_state_look(PyObject *node, PyObject *args);
PyObject *bind_state_await(PyObject *node, PyObject *args);
PyObject *bind_state_want(PyObject *node, PyObject *args);
PyObject *bind_gift_wait(PyObject *node, PyObject *args);
PyObject *bind_gift_give(PyObject *node, PyObject *args);
PyObject *bind_gift_take(PyObject *node, PyObject *args);
PyObject *bind_gift_follow(PyObject *node, PyObject *args);
PyObject *bind_gift_refuse(PyObject *node, PyObject *args);

/* ---- swarm keys and invitations, without a node (py_invite.c) ---- */

int hv_py_invite_init(PyObject *module);

/* ---- the rules of an epoch, without a node (py_plan.c, py_lineage.c, py_ledger.c, py_keep.c) ---- */

int hv_py_plan_init(PyObject *module);
int hv_py_lineage_init(PyObject *module);
int hv_py_ledger_init(PyObject *module);
int hv_py_keep_init(PyObject *module);
int hv_py_epoch_init(PyObject *module);

/* ---- the progress tracker of a run (py_progress.c) ---- */

PyTypeObject *bind_progress_type(PyObject *module);

/* ---- an averager (py_average.c) ---- */

PyTypeObject *bind_averager_type(PyObject *module);

/* Of an Averager. NULL: it was shut down, or its node is of another process; the error is raised. */
hv_hive_averager *bind_averager_of(PyObject *averager);
/* The same for work without the GIL: it is not closed before bind_averager_leave. */
hv_hive_averager *bind_averager_enter(PyObject *averager);
void bind_averager_leave(PyObject *averager);

/* ---- a hub's part in the rounds of a run (py_follow.c) ---- */

int hv_py_follow_init(PyObject *module);
int hv_py_replay_init(PyObject *module);

/* ---- the log of a run (py_step_log.c) ---- */

int hv_py_step_log_init(PyObject *module);

/* ---- received bytes as an object with the buffer protocol (py_parcel.c) ---- */

PyTypeObject *bind_parcel_type(PyObject *module);
/* Shows bytes that belong to a future, and holds a reference to it. */
PyObject *bind_parcel_new(bind_state *state, hv_future *future, hv_span bytes, int writable);

#endif
