/* Compiled kernels in a folder: cuda/keep.h. */
#include "cuda/keep.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/check.h"

enum { SIZE = 100000 };

typedef struct place {
  char root[64], folder[96], file[128];
  char code[SIZE];
  hv_mem mem;
} place;

static int set_up(void **state) {
  static place p;
  memset(&p, 0, sizeof p);
  hv_mem_init(&p.mem, NULL, HV_MEM_UNLIMITED);
  for (size_t i = 0; i < SIZE; i++)
    p.code[i] = (char)(i * 7 + i / 256);
  snprintf(p.root, sizeof p.root, "/tmp/hv_keep_%ld", (long)getpid());
  snprintf(p.folder, sizeof p.folder, "%s/a/kernels", p.root);
  snprintf(p.file, sizeof p.file, "%s/one", p.folder);
  *state = &p;
  return 0;
}
static int tear_down(void **state) {
  place *p = *state;
  char parent[96];
  unlink(p->file);
  rmdir(p->folder);
  snprintf(parent, sizeof parent, "%s/a", p->root);
  rmdir(parent);
  return rmdir(p->root); /* nothing else was left in it */
}

static hv_status read_back(place *p, char **out, size_t *size) {
  return hv_keep_read(p->folder, "one", &p->mem, out, size);
}

static void kept_code_comes_back_whole(void **state) {
  place *p = *state;
  char *out = NULL;
  size_t size = 0;
  hv_error err = {0};
  assert_int_equal(read_back(p, &out, &size), HV_NOT_FOUND);
  assert_int_equal(hv_keep_write(p->folder, "one", p->code, SIZE, &err), HV_OK);
  assert_int_equal(hv_keep_write(p->folder, "one", p->code, SIZE, &err), HV_OK); /* over the first */
  assert_int_equal(read_back(p, &out, &size), HV_OK);
  assert_int_equal(size, SIZE);
  assert_memory_equal(out, p->code, SIZE);
  hv_mem_free(out);
  hv_mem_fail_in(&p->mem, 0);
  assert_int_equal(read_back(p, &out, &size), HV_NOMEM);
  assert_int_equal(p->mem.blocks, 0);
}

/* Each byte of the head, and some of the code. */
static void file_with_a_changed_byte_is_ignored(void **state) {
  place *p = *state;
  char *out = NULL;
  size_t size;
  assert_int_equal(hv_keep_write(p->folder, "one", p->code, SIZE, NULL), HV_OK);
  for (long at = 0; at < SIZE + 24; at += at < 24 ? 1 : 9973) {
    FILE *file = fopen(p->file, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int was = fgetc(file);
    for (int turn = 0; turn < 2; turn++) {
      assert_int_equal(fseek(file, at, SEEK_SET), 0);
      fputc(turn ? was : was ^ 0x40, file);
      fflush(file);
      hv_status status = read_back(p, &out, &size);
      assert_int_equal(status, turn ? HV_OK : HV_NOT_FOUND);
      if (status == HV_OK)
        hv_mem_free(out);
    }
    fclose(file);
  }
  assert_int_equal(p->mem.blocks, 0);
}

static void file_that_others_may_write_is_ignored(void **state) {
  place *p = *state;
  char *out = NULL;
  size_t size;
  assert_int_equal(hv_keep_write(p->folder, "one", p->code, SIZE, NULL), HV_OK);
  assert_int_equal(chmod(p->file, 0620), 0);
  assert_int_equal(read_back(p, &out, &size), HV_NOT_FOUND);
  assert_int_equal(chmod(p->file, 0600), 0);
  assert_int_equal(read_back(p, &out, &size), HV_OK);
  hv_mem_free(out);
}

static void folder_that_cannot_be_made_is_an_error_with_a_reason(void **state) {
  place *p = *state;
  char below[160], deep[5000];
  hv_error err = {0};
  assert_int_equal(hv_keep_write(p->folder, "one", p->code, SIZE, &err), HV_OK);
  snprintf(below, sizeof below, "%s/kernels", p->file);
  assert_int_equal(hv_keep_write(below, "one", p->code, SIZE, &err), HV_IO);
  assert_non_null(strstr(err.text, "Not a directory; set HIVEMIND_CACHE to a folder that can be written"));
  memset(deep, 'x', sizeof deep - 1);
  deep[0] = '/', deep[sizeof deep - 1] = 0;
  assert_int_equal(hv_keep_write(deep, "one", p->code, SIZE, &err), HV_IO);
  assert_non_null(strstr(err.text, "File name too long"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(kept_code_comes_back_whole, set_up, tear_down),
      cmocka_unit_test_setup_teardown(file_with_a_changed_byte_is_ignored, set_up, tear_down),
      cmocka_unit_test_setup_teardown(file_that_others_may_write_is_ignored, set_up, tear_down),
      cmocka_unit_test_setup_teardown(folder_that_cannot_be_made_is_an_error_with_a_reason, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
