/* The first and the last step of a method of a node that returns a future. */
#include "bind.h"

static bind_state *state_of(bind_node *self) {
  return PyType_GetModuleState(Py_TYPE(self));
}

int bind_node_check(bind_node *self) {
  if (getpid() != self->pid)
    bind_raise(state_of(self), HV_FORKED, "cannot use this node: it was started before fork(); use it in the parent process");
  else if (!self->hive)
    bind_raise(state_of(self), HV_CLOSED, "cannot use this node: it was shut down");
  else
    return 0;
  return -1;
}

PyObject *bind_node_future(bind_node *self, const bind_future_kind *kind, hv_status status, hv_future *future) {
  bind_state *state = state_of(self);
  if (status == HV_CLOSED)
    return bind_raise(state, status, "cannot use this node: it was shut down");
  return status == HV_OK ? bind_future_new(state, self, kind, future, NULL) : bind_raise(state, status, NULL);
}
