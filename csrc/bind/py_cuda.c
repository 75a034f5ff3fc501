/* The functions of _hivemind_c over cuda/hv_cuda.h: the library is loaded when it is asked for, and says why when it cannot be. The
 * classes that people use are Python's (hivemind_c/cuda.py). Tensors are on the GPU, contiguous; memory for chunks and scratch is
 * torch's, handed in as tensors of uint8. Work goes onto the current stream of the tensor's device, and nobody waits for it here.
 */
#include "tensor.h"

#include "cuda/hv_cuda.h"

#include <dlfcn.h>
#include <string.h>

#define GPU "hivemind_c.cuda"
#define STAGE "hivemind_c.cuda.stage"
#define TRANSFERS "hivemind_c.cuda.transfers"
#define LIST_MAX 100000 /* tensors in one call */
#define COMPILERS_MOST 32

typedef struct gpu {
  const hv_cuda_api *api;
  hv_cuda *cuda;
  int index;
  pid_t pid;
} gpu;

static bind_state *state_of(PyObject *module) {
  return PyModule_GetState(module);
}

/* ---- the library and the device ---- */

static void gpu_end(PyObject *capsule) {
  gpu *g = PyCapsule_GetPointer(capsule, GPU);
  if (g && g->pid == getpid())
    g->api->close(g->cuda);
  hv_mem_free(g);
}

/* The library stays loaded, and the driver with it. */
static const hv_cuda_api *load(bind_state *state, const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    bind_raise(state, HV_UNSUPPORTED, dlerror());
    return NULL;
  }
  const hv_cuda_api *(*api_of)(uint32_t) = NULL;
  *(void **)&api_of = dlsym(library, "hv_cuda_api_of");
  const hv_cuda_api *api = api_of ? api_of(HV_CUDA_VERSION) : NULL;
  if (!api) {
    dlclose(library);
    bind_raise(state, HV_UNSUPPORTED, "the library for GPUs is of another version of hivemind_c: install hivemind_c again");
  }
  return api;
}

/* Opens the device; with a sentence if the kernels were compiled. */
static PyObject *open_with(bind_state *state, const hv_cuda_api *api, int index, const hv_cuda_kit *kit) {
  hv_error err = {0}, note = {0};
  hv_status status;
  gpu *g = hv_mem_zalloc(state->mem, sizeof *g);
  if (!g)
    return PyErr_NoMemory();
  g->api = api, g->index = index, g->pid = getpid();
  Py_BEGIN_ALLOW_THREADS
  status = api->open(index, kit, &g->cuda, &note, &err);
  Py_END_ALLOW_THREADS
  PyObject *capsule = status == HV_OK ? PyCapsule_New(g, GPU, gpu_end) : bind_raise_why(state, status, &err);
  if (!capsule) {
    if (status == HV_OK)
      api->close(g->cuda);
    hv_mem_free(g);
    return NULL;
  }
  return Py_BuildValue("NzN", capsule, note.text[0] ? note.text : NULL, PyBool_FromLong(note.status != HV_OK));
}

static PyObject *cuda_open(PyObject *module, PyObject *args) {
  bind_state *state = state_of(module);
  const char *path, *compilers[COMPILERS_MOST];
  hv_cuda_kit kit = {.compilers = compilers};
  PyObject *names;
  int index;
  if (!PyArg_ParseTuple(args, "siO!z:cuda_open", &path, &index, &PyList_Type, &names, &kit.cache))
    return NULL;
  for (Py_ssize_t i = 0; i < PyList_Size(names) && i < COMPILERS_MOST; i++)
    if (!(compilers[kit.n_compilers++] = PyUnicode_AsUTF8AndSize(PyList_GetItem(names, i), NULL)))
      return NULL;
  const hv_cuda_api *api = load(state, path);
  return api ? open_with(state, api, index, &kit) : NULL;
}

static gpu *gpu_of(bind_state *state, PyObject *capsule) {
  gpu *g = PyCapsule_GetPointer(capsule, GPU);
  if (g && g->pid != getpid()) {
    bind_raise(state, HV_FORKED, "a GPU cannot be used in a forked child: start the process with spawn");
    return NULL;
  }
  return g;
}

/* ---- tensors ---- */

/* Borrows a contiguous tensor on the GPU; dtype: it must have one that codecs take. */
static int borrow(bind_state *state, const gpu *g, PyObject *object, int writable, int floats, const char *what, bind_tensor *out) {
  if (bind_tensor_borrow(state, object, writable, out) < 0)
    return -1;
  int elsewhere = out->device_type != g->api->device_type || (!out->on_cpu && out->device_index != g->index);
  const char *wrong = elsewhere                            ? "must be on the GPU that these kernels are for"
                      : !out->contiguous                   ? "must be contiguous: call .contiguous() first"
                      : floats != (out->dtype != 0)        ? "is of another dtype than it must be"
                      : !out->on_cpu && !out->knows_stream ? "tells no stream: GPUs need torch 2.10 or later"
                                                           : NULL;
  return wrong ? bind_tensor_refuse(state, out, what, wrong) : 0;
}

static PyObject *done(PyObject *module, hv_status status, const hv_error *err) {
  return status == HV_OK ? Py_NewRef(Py_None) : bind_raise_why(state_of(module), status, err);
}

static PyObject *cuda_room(PyObject *module, PyObject *args) {
  PyObject *capsule;
  int codec, dtype;
  unsigned long long count, width = 0;
  if (!PyArg_ParseTuple(args, "OiiK|K:cuda_room", &capsule, &codec, &dtype, &count, &width))
    return NULL;
  const gpu *g = gpu_of(state_of(module), capsule);
  uint64_t size = hv_codec_bound_rows(codec, dtype, count, (hv_rows){width, width});
  if (!g)
    return NULL;
  if (!size)
    return bind_raise(state_of(module), HV_INVALID, "there is no chunk of this codec, dtype and count");
  hv_cuda_source one = {.count = count};
  size_t encode = g->api->encode_room((hv_codec)codec, &one, 1), check = g->api->check_room(1);
  return Py_BuildValue("(KK)", (unsigned long long)size, (unsigned long long)(encode > check ? encode : check));
}

static PyObject *cuda_encode(PyObject *module, PyObject *args) {
  bind_state *state = state_of(module);
  PyObject *capsule, *objects[4] = {NULL, NULL, NULL, Py_None};
  bind_tensor t[4] = {{0}};
  hv_error err = {0};
  hv_status status = HV_INVALID;
  int codec, ok = 1;
  unsigned long long width = 0;
  if (!PyArg_ParseTuple(args, "OiOOO|OK:cuda_encode", &capsule, &codec, &objects[0], &objects[1], &objects[2], &objects[3], &width))
    return NULL;
  hv_rows rows = {width, width};
  const gpu *g = gpu_of(state, capsule);
  if (!g)
    return NULL;
  static const char *const names[] = {"the tensor", "the chunk", "the scratch memory", "the residual"};
  for (int i = 0; i < 4 && ok; i++)
    ok = objects[i] == Py_None || borrow(state, g, objects[i], i > 0, i == 0 || i == 3, names[i], &t[i]) == 0;
  if (ok && t[3].owner && (t[3].dtype != HV_DTYPE_FLOAT32 || t[3].count != t[0].count)) {
    bind_raise(state, HV_INVALID, "the residual must be float32 and have as many elements as the tensor");
    ok = 0;
  }
  if (ok && t[1].count < hv_codec_bound_rows(codec, t[0].dtype, t[0].count, rows)) {
    bind_raise(state, HV_INVALID, "the chunk's memory is too small");
    ok = 0;
  }
  if (ok) {
    hv_cuda_source one = {t[0].data, t[3].owner ? t[3].data : NULL, t[1].data, t[0].count, rows};
    Py_BEGIN_ALLOW_THREADS
    status = g->api->encode(g->cuda, t[0].stream, (hv_codec)codec, (hv_dtype)t[0].dtype, &one, 1, t[2].data, t[2].count, &err);
    Py_END_ALLOW_THREADS
  }
  for (int i = 0; i < 4; i++)
    bind_tensor_return(&t[i]);
  return ok ? done(module, status, &err) : NULL;
}

/* cuda_check and cuda_decode: the chunk, and a tensor or scratch to go with it. */
static PyObject *read_chunk(PyObject *module, PyObject *args, int check) {
  bind_state *state = state_of(module);
  PyObject *capsule, *chunk, *other, *verdict = Py_None;
  bind_tensor c = {0}, o = {0}, v = {0};
  hv_error err = {0};
  hv_status status = HV_INVALID;
  int codec, dtype, finite = 0, ok;
  unsigned long long count, width = 0;
  if (!(check
            ? PyArg_ParseTuple(args, "OOiiKpOO|K:cuda_check", &capsule, &chunk, &codec, &dtype, &count, &finite, &verdict, &other,
                               &width)
            : PyArg_ParseTuple(args, "OOiiKO|OK:cuda_decode", &capsule, &chunk, &codec, &dtype, &count, &other, &verdict, &width)))
    return NULL;
  hv_rows rows = {width, width};
  uint64_t size = hv_codec_bound_rows(codec, dtype, count, rows);
  const gpu *g = gpu_of(state, capsule);
  if (!g)
    return NULL;
  ok = borrow(state, g, chunk, 0, 0, "the chunk", &c) == 0 &&
       borrow(state, g, other, 1, !check, check ? "the scratch memory" : "the output", &o) == 0 &&
       (verdict == Py_None || borrow(state, g, verdict, 1, 0, "the verdict", &v) == 0);
  if (ok && (!size || c.count < size || (!check && o.count != count) || (v.owner && v.count < 4))) {
    bind_raise(state, HV_INVALID, "the chunk's memory, its output or its verdict is not of the size that its header says");
    ok = 0;
  }
  if (ok) {
    hv_cuda_target one = {c.data, (hv_codec)codec, (hv_dtype)dtype, count, check ? NULL : o.data, v.owner ? v.data : NULL, rows};
    Py_BEGIN_ALLOW_THREADS
    status = check ? g->api->check(g->cuda, c.stream, &one, 1, finite, o.data, o.count, &err)
                   : g->api->decode(g->cuda, c.stream, (hv_dtype)o.dtype, &one, 1, &err);
    Py_END_ALLOW_THREADS
  }
  bind_tensor_return(&c), bind_tensor_return(&o), bind_tensor_return(&v);
  return ok ? done(module, status, &err) : NULL;
}
static PyObject *cuda_check(PyObject *module, PyObject *args) {
  return read_chunk(module, args, 1);
}
static PyObject *cuda_decode(PyObject *module, PyObject *args) {
  return read_chunk(module, args, 0);
}

static PyObject *cuda_add(PyObject *module, PyObject *args) {
  bind_state *state = state_of(module);
  PyObject *capsule, *sum, *list;
  bind_tensor acc = {0}, t[HV_CUDA_INPUTS_MAX] = {{0}};
  hv_cuda_input inputs[HV_CUDA_INPUTS_MAX];
  hv_error err = {0};
  hv_status status = HV_INVALID;
  if (!PyArg_ParseTuple(args, "OOO!:cuda_add", &capsule, &sum, &PyList_Type, &list))
    return NULL;
  const gpu *g = gpu_of(state, capsule);
  Py_ssize_t n = PyList_Size(list);
  if (!g)
    return NULL;
  if (n < 1 || n > HV_CUDA_INPUTS_MAX)
    return bind_raise(state, HV_INVALID, "a sum has 1 to 16 inputs");
  int ok = borrow(state, g, sum, 1, 1, "the sum", &acc) == 0;
  for (Py_ssize_t i = 0; i < n && ok; i++) {
    PyObject *chunk;
    int codec, dtype;
    float weight;
    ok = PyArg_ParseTuple(PyList_GetItem(list, i), "Oiif:cuda_add", &chunk, &codec, &dtype, &weight) &&
         borrow(state, g, chunk, 0, 0, "the chunk", &t[i]) == 0;
    if (ok && (acc.dtype != HV_DTYPE_FLOAT32 || t[i].count < hv_codec_bound(codec, dtype, acc.count))) {
      bind_raise(state, HV_INVALID, "the sum must be float32, and a chunk of as many elements");
      ok = 0;
    }
    if (ok)
      inputs[i] = (hv_cuda_input){t[i].data, (hv_codec)codec, (hv_dtype)dtype, weight, NULL};
  }
  if (ok) {
    hv_cuda_sum one = {acc.data, acc.count, inputs, (size_t)n};
    Py_BEGIN_ALLOW_THREADS
    status = g->api->add(g->cuda, acc.stream, &one, 1, &err);
    Py_END_ALLOW_THREADS
  }
  bind_tensor_return(&acc);
  for (Py_ssize_t i = 0; i < n; i++)
    bind_tensor_return(&t[i]);
  return ok ? done(module, status, &err) : NULL;
}

static PyObject *cuda_finite(PyObject *module, PyObject *args) {
  bind_state *state = state_of(module);
  PyObject *capsule, *tensor, *flag;
  bind_tensor t = {0}, f = {0};
  hv_error err = {0};
  hv_status status = HV_INVALID;
  if (!PyArg_ParseTuple(args, "OOO:cuda_finite", &capsule, &tensor, &flag))
    return NULL;
  const gpu *g = gpu_of(state, capsule);
  if (!g || borrow(state, g, tensor, 0, 1, "the tensor", &t) < 0)
    return NULL;
  int ok = borrow(state, g, flag, 1, 0, "the flag", &f) == 0;
  if (ok && (f.count < 4 || (uintptr_t)f.data % 4)) {
    bind_raise(state, HV_INVALID, "the flag needs four bytes");
    ok = 0;
  }
  if (ok) {
    Py_BEGIN_ALLOW_THREADS
    status = g->api->finite(g->cuda, t.stream, (hv_dtype)t.dtype, t.data, t.count, f.data, &err);
    Py_END_ALLOW_THREADS
  }
  bind_tensor_return(&t), bind_tensor_return(&f);
  return ok ? done(module, status, &err) : NULL;
}

/* ---- many tensors at once ---- */

typedef struct many {
  bind_tensor *tensors; /* 2 n: source, sum, source, ... */
  hv_cuda_pair *pairs;
  size_t n;
} many;

static int borrow_many(bind_state *state, const gpu *g, PyObject *sources, PyObject *sums, many *m) {
  for (size_t i = 0; i < m->n; i++) {
    bind_tensor *src = &m->tensors[2 * i], *acc = src + 1;
    if (borrow(state, g, PyList_GetItem(sources, (Py_ssize_t)i), 0, 1, "a tensor", src) < 0 ||
        borrow(state, g, PyList_GetItem(sums, (Py_ssize_t)i), 1, 1, "a sum", acc) < 0)
      return -1;
    if (acc->dtype != HV_DTYPE_FLOAT32 || acc->count != src->count || src->dtype != m->tensors[0].dtype) {
      bind_raise(state, HV_INVALID, "sums are float32 and as large as their tensors, which are all of one dtype");
      return -1;
    }
    m->pairs[i] = (hv_cuda_pair){src->data, acc->data, src->count};
  }
  return 0;
}

static PyObject *cuda_accumulate(PyObject *module, PyObject *args) {
  bind_state *state = state_of(module);
  PyObject *capsule, *sources, *sums, *result = NULL;
  hv_error err = {0};
  hv_status status;
  float weight;
  many m = {0};
  if (!PyArg_ParseTuple(args, "OfO!O!:cuda_accumulate", &capsule, &weight, &PyList_Type, &sources, &PyList_Type, &sums))
    return NULL;
  const gpu *g = gpu_of(state, capsule);
  m.n = (size_t)PyList_Size(sources);
  if (!g)
    return NULL;
  if (m.n > LIST_MAX || PyList_Size(sums) != PyList_Size(sources))
    return bind_raise(state, HV_INVALID, "there must be as many sums as tensors");
  if (!m.n)
    Py_RETURN_NONE;
  m.tensors = hv_mem_array(state->mem, 2 * m.n, sizeof *m.tensors);
  m.pairs = hv_mem_array(state->mem, m.n, sizeof *m.pairs);
  if (!m.tensors || !m.pairs) {
    PyErr_NoMemory();
  } else if (borrow_many(state, g, sources, sums, &m) == 0) {
    Py_BEGIN_ALLOW_THREADS
    status = g->api->accumulate(g->cuda, m.tensors[0].stream, (hv_dtype)m.tensors[0].dtype, weight, m.pairs, m.n, &err);
    Py_END_ALLOW_THREADS
    result = done(module, status, &err);
  }
  for (size_t i = 0; m.tensors && i < 2 * m.n; i++)
    bind_tensor_return(&m.tensors[i]);
  hv_mem_free(m.tensors);
  hv_mem_free(m.pairs);
  return result;
}

/* ---- chunk by chunk ---- */

typedef struct staged {
  PyObject *gpu; /* kept alive */
  const hv_cuda_api *api;
  hv_stage *stage;
  int dtype, busy;
  pid_t pid;
} staged;

static void stage_end(PyObject *capsule) {
  staged *s = PyCapsule_GetPointer(capsule, STAGE);
  if (s->pid == getpid())
    s->api->stage_free(s->stage);
  Py_DECREF(s->gpu);
  hv_mem_free(s);
}

static PyObject *cuda_stage(PyObject *module, PyObject *args) {
  bind_state *state = state_of(module);
  PyObject *capsule, *result = NULL;
  int codec, dtype;
  unsigned chunk_values, slots;
  unsigned long long pinned_most;
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "OiiIIK:cuda_stage", &capsule, &codec, &dtype, &chunk_values, &slots, &pinned_most))
    return NULL;
  const gpu *g = gpu_of(state, capsule);
  if (!g)
    return NULL;
  staged *s = hv_mem_zalloc(state->mem, sizeof *s);
  if (!s)
    return PyErr_NoMemory();
  hv_stage_shape shape = {(hv_codec)codec, (hv_dtype)dtype, chunk_values, slots, (size_t)pinned_most};
  Py_BEGIN_ALLOW_THREADS
  status = g->api->stage_new(g->cuda, state->mem, &shape, &s->stage, &err);
  Py_END_ALLOW_THREADS
  if (status != HV_OK) {
    hv_mem_free(s);
    return bind_raise_why(state, status, &err);
  }
  s->gpu = Py_NewRef(capsule), s->api = g->api, s->dtype = dtype, s->pid = getpid();
  result = PyCapsule_New(s, STAGE, stage_end);
  if (!result) {
    g->api->stage_free(s->stage);
    Py_DECREF(capsule);
    hv_mem_free(s);
  }
  return result;
}

/* A Python callable that gets or provides chunks; the GIL is held only while it runs. */
typedef struct talk {
  PyObject *call;
  PyThreadState *thread;
} talk;

static hv_status give(void *arg, uint64_t index, hv_span bytes, hv_error *err) {
  talk *t = arg;
  PyEval_RestoreThread(t->thread);
  PyObject *answer =
      PyObject_CallFunction(t->call, "Ky#", (unsigned long long)index, (const char *)bytes.data, (Py_ssize_t)bytes.size);
  hv_status status = answer ? HV_OK : hv_fail(err, HV_CANCELLED, "the receiver of the chunks failed");
  Py_XDECREF(answer);
  t->thread = PyEval_SaveThread();
  return status;
}

static hv_status fetch(void *arg, uint64_t index, uint8_t *bytes, size_t room, size_t *size, hv_error *err) {
  talk *t = arg;
  Py_buffer view;
  hv_status status = HV_OK;
  PyEval_RestoreThread(t->thread);
  PyObject *answer = PyObject_CallFunction(t->call, "K", (unsigned long long)index);
  if (!answer || PyObject_GetBuffer(answer, &view, PyBUF_SIMPLE) < 0) {
    status = hv_fail(err, HV_CANCELLED, "the source of the chunks failed");
  } else {
    *size = (size_t)view.len;
    if (*size <= room)
      memcpy(bytes, view.buf, *size);
    PyBuffer_Release(&view);
  }
  Py_XDECREF(answer);
  t->thread = PyEval_SaveThread();
  return status;
}

static PyObject *move(PyObject *module, PyObject *args, int in) {
  bind_state *state = state_of(module);
  PyObject *capsule, *tensor;
  bind_tensor t = {0};
  talk to = {0};
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, in ? "OOO:cuda_receive" : "OOO:cuda_send", &capsule, &tensor, &to.call))
    return NULL;
  staged *s = PyCapsule_GetPointer(capsule, STAGE);
  const gpu *g = s ? gpu_of(state, s->gpu) : NULL;
  if (!g)
    return NULL;
  if (s->busy)
    return bind_raise(state, HV_BUSY, "this stage is in use: one thread at a time");
  if (borrow(state, g, tensor, in, 1, "the tensor", &t) < 0)
    return NULL;
  if (t.dtype != s->dtype) {
    bind_tensor_return(&t);
    return bind_raise(state, HV_INVALID, "the tensor is of another dtype than the stage was made for");
  }
  s->busy = 1;
  to.thread = PyEval_SaveThread();
  status = in ? s->api->receive(s->stage, t.stream, t.data, t.count, fetch, &to, &err)
              : s->api->send(s->stage, t.stream, t.data, t.count, give, &to, &err);
  PyEval_RestoreThread(to.thread);
  s->busy = 0;
  bind_tensor_return(&t);
  return status != HV_OK && PyErr_Occurred() ? NULL : done(module, status, &err);
}
static PyObject *cuda_send(PyObject *module, PyObject *args) {
  return move(module, args, 0);
}
static PyObject *cuda_receive(PyObject *module, PyObject *args) {
  return move(module, args, 1);
}

/* ---- the tensors of rounds ---- */

typedef struct ferried {
  PyObject *gpu; /* kept alive */
  const hv_cuda_api *api;
  hv_transfers *transfers;
  pid_t pid;
} ferried;

/* In a forked child nothing is touched: the threads that use it stayed behind. */
static void transfers_end(PyObject *capsule) {
  ferried *f = PyCapsule_GetPointer(capsule, TRANSFERS);
  if (f->pid == getpid()) {
    Py_BEGIN_ALLOW_THREADS
    f->api->transfers_free(f->transfers);
    Py_END_ALLOW_THREADS
    Py_DECREF(f->gpu);
    hv_mem_free(f);
  }
}

static PyObject *cuda_transfers(PyObject *module, PyObject *args) {
  bind_state *state = state_of(module);
  PyObject *capsule;
  unsigned chunk_values, slots;
  unsigned long long pinned_most;
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "OIIK:cuda_transfers", &capsule, &chunk_values, &slots, &pinned_most))
    return NULL;
  const gpu *g = gpu_of(state, capsule);
  ferried *f = g ? hv_mem_zalloc(state->mem, sizeof *f) : NULL;
  if (!f)
    return g ? PyErr_NoMemory() : NULL;
  hv_transfers_shape shape = {chunk_values, slots, HV_TRANSFERS_SUMS, (size_t)pinned_most};
  Py_BEGIN_ALLOW_THREADS
  status = g->api->transfers_new(g->cuda, state->mem, &shape, &f->transfers, &err);
  Py_END_ALLOW_THREADS
  if (status != HV_OK) {
    hv_mem_free(f);
    return bind_raise_why(state, status, &err);
  }
  f->gpu = Py_NewRef(capsule), f->api = g->api, f->pid = getpid();
  PyObject *result = PyCapsule_New(f, TRANSFERS, transfers_end);
  if (!result) {
    g->api->transfers_free(f->transfers);
    Py_DECREF(capsule);
    hv_mem_free(f);
  }
  return result;
}

const struct hv_device *bind_transfers_borrow(bind_state *state, PyObject *capsule, PyObject *object, const char *what,
                                              bind_tensor *out) {
  ferried *f = PyCapsule_GetPointer(capsule, TRANSFERS);
  const gpu *g = f ? gpu_of(state, f->gpu) : NULL;
  if (!g || borrow(state, g, object, 1, 1, what, out) < 0)
    return NULL;
  if (out->dtype == HV_DTYPE_FLOAT64) {
    bind_tensor_refuse(state, out, what, "must be float32, float16 or bfloat16 to be averaged on a GPU");
    return NULL;
  }
  return f->api->transfers_device(f->transfers);
}

static PyObject *cuda_follow(PyObject *module, PyObject *args) {
  bind_state *state = state_of(module);
  PyObject *capsule, *tensor;
  bind_tensor t = {0};
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "OO:cuda_follow", &capsule, &tensor) ||
      !bind_transfers_borrow(state, capsule, tensor, "the tensor", &t))
    return NULL;
  ferried *f = PyCapsule_GetPointer(capsule, TRANSFERS);
  Py_BEGIN_ALLOW_THREADS
  status = f->api->transfers_follow(f->transfers, t.stream, &err);
  Py_END_ALLOW_THREADS
  bind_tensor_return(&t);
  return done(module, status, &err);
}

static PyObject *cuda_why(PyObject *module, PyObject *capsule) {
  hv_error err = {0};
  ferried *f = PyCapsule_GetPointer(capsule, TRANSFERS);
  if (!f || !gpu_of(state_of(module), f->gpu))
    return NULL;
  return f->api->transfers_why(f->transfers, &err) == HV_OK ? Py_NewRef(Py_None) : PyUnicode_FromString(err.text);
}

static PyMethodDef functions[] = {
    {"cuda_open", cuda_open, METH_VARARGS,
     "cuda_open(library, index, compilers, cache) -> (gpu, note on compiling or None, whether it is a warning)"},
    {"cuda_room", cuda_room, METH_VARARGS, "cuda_room(gpu, codec, dtype, count, width=0) -> bytes of the chunk, of scratch memory"},
    {"cuda_encode", cuda_encode, METH_VARARGS, "cuda_encode(gpu, codec, tensor, chunk, scratch, residual=None, width=0)"},
    {"cuda_check", cuda_check, METH_VARARGS, "cuda_check(gpu, chunk, codec, dtype, count, finite, verdict, scratch, width=0)"},
    {"cuda_decode", cuda_decode, METH_VARARGS, "cuda_decode(gpu, chunk, codec, dtype, count, out, verdict=None, width=0)"},
    {"cuda_add", cuda_add, METH_VARARGS, "cuda_add(gpu, sum, [(chunk, codec, dtype, weight), ...])"},
    {"cuda_finite", cuda_finite, METH_VARARGS, "cuda_finite(gpu, tensor, flag)"},
    {"cuda_accumulate", cuda_accumulate, METH_VARARGS, "cuda_accumulate(gpu, weight, tensors, sums)"},
    {"cuda_stage", cuda_stage, METH_VARARGS, "cuda_stage(gpu, codec, dtype, chunk_values, slots, pinned_most) -> stage"},
    {"cuda_send", cuda_send, METH_VARARGS, "cuda_send(stage, tensor, call(index, bytes))"},
    {"cuda_receive", cuda_receive, METH_VARARGS, "cuda_receive(stage, tensor, call(index) -> bytes)"},
    {"cuda_transfers", cuda_transfers, METH_VARARGS, "cuda_transfers(gpu, chunk_values, slots, pinned_most) -> transfers"},
    {"cuda_follow", cuda_follow, METH_VARARGS,
     "cuda_follow(transfers, tensor): rounds come after what is on the tensor's stream now"},
    {"cuda_why", cuda_why, METH_O, "cuda_why(transfers) -> the first error of its GPU, or None"},
    {NULL, NULL, 0, NULL},
};

int hv_py_cuda_init(PyObject *module) {
  return PyModule_AddFunctions(module, functions);
}
