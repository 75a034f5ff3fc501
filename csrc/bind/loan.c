#include "bind.h"

bind_bay *bind_bay_new(bind_state *state) {
  bind_bay *bay = hv_mem_zalloc(state->mem, sizeof *bay);
  if (!bay) {
    PyErr_NoMemory();
    return NULL;
  }
  atomic_init(&bay->returned, NULL);
  bay->refs = 1;
  return bay;
}

void bind_bay_release(bind_bay *bay) {
  if (bay && --bay->refs == 0)
    hv_mem_free(bay);
}

bind_loan *bind_loan_new(bind_state *state, bind_bay *bay, PyObject *bytes) {
  bind_loan *loan = hv_mem_zalloc(state->mem, sizeof *loan);
  if (!loan) {
    PyErr_NoMemory();
    return NULL;
  }
  loan->bay = bay;
  bay->refs++;
  loan->refs = 1;
  atomic_init(&loan->back, 0);
  loan->event = PyThread_allocate_lock();
  if (!loan->event || PyObject_GetBuffer(bytes, &loan->view, PyBUF_SIMPLE) < 0) {
    if (!loan->event)
      PyErr_NoMemory();
    loan->released = 1;
    bind_loan_release(loan);
    return NULL;
  }
  PyThread_acquire_lock(loan->event, WAIT_LOCK);
  return loan;
}

void bind_loan_back(void *arg) {
  bind_loan *loan = arg;
  bind_bay *bay = loan->bay;
  atomic_store(&loan->back, 1);
  PyThread_release_lock(loan->event);
  bind_loan *first = atomic_load(&bay->returned);
  do
    loan->next = first;
  while (!atomic_compare_exchange_weak(&bay->returned, &first, loan));
}

void bind_loan_settle(bind_loan *loan) {
  if (loan->released || !atomic_load(&loan->back))
    return;
  loan->released = 1;
  PyBuffer_Release(&loan->view);
}

void bind_loan_release(bind_loan *loan) {
  if (!loan || --loan->refs > 0)
    return;
  if (!loan->released) {
    loan->released = 1;
    PyBuffer_Release(&loan->view);
  }
  if (loan->event)
    PyThread_free_lock(loan->event);
  bind_bay_release(loan->bay);
  hv_mem_free(loan);
}

int bind_loan_wait(bind_loan *loan, uint32_t timeout_ms) {
  if (atomic_load(&loan->back))
    return 1;
  if (PyThread_acquire_lock_timed(loan->event, (long long)timeout_ms * 1000, 0) == PY_LOCK_ACQUIRED)
    PyThread_release_lock(loan->event); /* for whoever else waits */
  return atomic_load(&loan->back);
}

void bind_bay_settle(bind_bay *bay) {
  bind_loan *loan = atomic_exchange(&bay->returned, NULL);
  while (loan) {
    bind_loan *next = loan->next;
    bind_loan_settle(loan);
    bind_loan_release(loan);
    loan = next;
  }
}
