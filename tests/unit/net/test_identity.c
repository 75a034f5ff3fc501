/* Keys, key files, signatures and certificates: what is made, what is believed, and what is left behind when something fails. */
#include "lib/check.h"

#include "net/identity.h"

#include <dirent.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOW = 1700000000, DAY = 86400 };

/* ---- libcrypto's own allocations: counted, and failing on demand ---- */

static atomic_long crypto_fail_in = -1;
static atomic_size_t crypto_refused;

static int crypto_fails(void) {
  if (atomic_load(&crypto_fail_in) < 0 || atomic_fetch_sub(&crypto_fail_in, 1) != 0)
    return 0;
  atomic_fetch_add(&crypto_refused, 1);
  return 1;
}

static void *crypto_malloc(size_t size, const char *file, int line) {
  (void)file, (void)line;
  return size == 0 || crypto_fails() ? NULL : malloc(size);
}

static void *crypto_realloc(void *block, size_t size, const char *file, int line) {
  (void)file, (void)line;
  return crypto_fails() ? NULL : realloc(block, size);
}

static void crypto_free(void *block, const char *file, int line) {
  (void)file, (void)line;
  free(block);
}

/* ---- help ---- */

static hv_span text_of(const char *text) {
  return hv_span_of(text, strlen(text));
}

static void from_hex(const char *hex, uint8_t *out, size_t size) {
  assert_int_equal(strlen(hex), 2 * size);
  for (size_t i = 0; i < size; i++) {
    unsigned byte = 0;
    assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
    out[i] = (uint8_t)byte;
  }
}

static hv_identity *identity_of(hv_mem *mem, const char *seed_hex) {
  uint8_t seed[32];
  from_hex(seed_hex, seed, 32);
  hv_identity *identity = hv_identity_from_seed(mem, seed);
  assert_non_null(identity);
  return identity;
}

#define SEED_1 "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
#define SEED_2 "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
#define SEED_3 "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7"
#define PEM_1                                                                                                                      \
  "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n"
#define ID_1 "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"

/* Every test runs in a fresh folder and an account that must be empty afterwards. */
typedef struct place {
  hv_mem mem;
  char folder[64];
  char path[128];
} place;

static int settle(void **state) {
  static place p;
  hv_mem_init(&p.mem, NULL, HV_MEM_UNLIMITED);
  strcpy(p.folder, "/tmp/hv-identity-XXXXXX");
  if (!mkdtemp(p.folder))
    return -1;
  snprintf(p.path, sizeof p.path, "%s/key", p.folder);
  *state = &p;
  return 0;
}

static int files_in(const char *folder) {
  int n = 0;
  DIR *dir = opendir(folder);
  for (struct dirent *entry; (entry = readdir(dir));)
    n += entry->d_name[0] != '.';
  closedir(dir);
  return n;
}

static int leave_tidy(void **state) {
  place *p = *state;
  DIR *dir = opendir(p->folder);
  char path[512];
  for (struct dirent *entry; (entry = readdir(dir));) {
    snprintf(path, sizeof path, "%s/%s", p->folder, entry->d_name);
    if (remove(path) != 0 && entry->d_name[0] != '.')
      return -1;
  }
  closedir(dir);
  rmdir(p->folder);
  return atomic_load(&p->mem.blocks) != 0 || ERR_peek_error() != 0;
}

static void write_file(const char *path, const void *bytes, size_t size, mode_t mode) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, bytes, size), size);
  assert_int_equal(fchmod(fd, mode), 0);
  close(fd);
}

/* ---- keys and signatures ---- */

static void seeds_give_the_keys_of_rfc_8032(void **state) {
  place *p = *state;
  static const char *const known[][2] = {
      {SEED_1, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"},
      {SEED_2, "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"},
      {SEED_3, "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"},
  };
  for (int i = 0; i < 3; i++) {
    uint8_t key[32];
    from_hex(known[i][1], key, 32);
    hv_identity *identity = identity_of(&p->mem, known[i][0]);
    assert_memory_equal(hv_identity_peer(identity)->key, key, 32);
    hv_identity_free(identity);
  }
  hv_identity_free(NULL);
}

/* Vectors from RFC 8032's reference program over domain, a zero byte, bytes. */
static void signatures_are_ed25519_over_domain_and_bytes(void **state) {
  place *p = *state;
  uint8_t long_bytes[5000];
  for (int i = 0; i < 5000; i++)
    long_bytes[i] = (uint8_t)(i * 7);
  const struct {
    const char *seed, *domain;
    hv_span bytes;
    const char *signature;
  } known[] = {
      {SEED_1, "", hv_span_of(NULL, 0),
       "fb6665a8e278a0d6a80450b95d4c4ef7e4bc78694db766e16c8b754f8589e1f3b39709e7d714f8173023cf7d4f46330b216cbf4e95274b22bbd6125aa14"
       "c8f0a"},
      {SEED_2, "hv:test", hv_span_of("abc", 3),
       "7c38147e838affad5e683711544ccd830183ee5b1e872d3c9268a5c43966bbec7f63f4ce6575e25791992c8a4f312583c7be3771fe739de6aae592b375c"
       "90205"},
      {SEED_3, "hv:test", hv_span_of(long_bytes, sizeof long_bytes),
       "c9d201dbf26617b35107fdd9ac41a8abe86885ed33bd52d55a7056a56ac5dab52507b947a048f66dae0598774ea055172c13e452e689097fd0bbd09016e"
       "e6f07"},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    uint8_t expected[64], signature[64];
    from_hex(known[i].signature, expected, 64);
    hv_identity *identity = identity_of(&p->mem, known[i].seed);
    assert_int_equal(hv_identity_sign(identity, known[i].domain, known[i].bytes, signature), HV_OK);
    assert_memory_equal(signature, expected, 64);
    assert_int_equal(hv_identity_verify(hv_identity_peer(identity), known[i].domain, known[i].bytes, signature), 1);
    hv_identity_free(identity);
  }
}

static void a_signature_holds_for_its_domain_bytes_and_key_only(void **state) {
  place *p = *state;
  hv_identity *a = identity_of(&p->mem, SEED_1), *b = identity_of(&p->mem, SEED_2);
  const hv_peer_id *peer = hv_identity_peer(a);
  uint8_t signature[64];
  assert_int_equal(hv_identity_sign(a, "hv:record", text_of("bytes"), signature), HV_OK);
  assert_int_equal(hv_identity_verify(peer, "hv:record", text_of("bytes"), signature), 1);
  assert_int_equal(hv_identity_verify(peer, "hv:hello", text_of("bytes"), signature), 0);
  assert_int_equal(hv_identity_verify(peer, "", text_of("bytes"), signature), 0);
  assert_int_equal(hv_identity_verify(peer, "hv:recordb", text_of("ytes"), signature), 0); /* the border counts */
  assert_int_equal(hv_identity_verify(peer, "hv:recor", text_of("dbytes"), signature), 0);
  assert_int_equal(hv_identity_verify(peer, "hv:record", text_of("byte"), signature), 0);
  assert_int_equal(hv_identity_verify(peer, "hv:record", hv_span_of(NULL, 0), signature), 0);
  assert_int_equal(hv_identity_verify(hv_identity_peer(b), "hv:record", text_of("bytes"), signature), 0);
  hv_peer_id nobody = {{0}}, no_point = {{2}};
  assert_int_equal(hv_identity_verify(&nobody, "hv:record", text_of("bytes"), signature), 0);
  assert_int_equal(hv_identity_verify(&no_point, "hv:record", text_of("bytes"), signature), 0);
  for (int bit = 0; bit < 512; bit++) {
    signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_int_equal(hv_identity_verify(peer, "hv:record", text_of("bytes"), signature), 0);
    signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  assert_int_equal(hv_identity_verify(peer, "hv:record", text_of("bytes"), signature), 1);
  hv_identity_free(a);
  hv_identity_free(b);
}

/* For the point 1 of order 1 the signature (1, 0) holds for each message, as libcrypto counts. */
static void weak_key_signs_nothing(void **state) {
  (void)state;
  hv_peer_id weak = {.key = {1}};
  uint8_t signature[64] = {1};
  assert_false(hv_identity_verify(&weak, "hv:record", text_of("anything"), signature));
  EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, weak.key, sizeof weak.key);
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  assert_int_equal(EVP_DigestVerifyInit(context, NULL, NULL, NULL, key), 1);
  assert_int_equal(EVP_DigestVerify(context, signature, 64, (const uint8_t *)"anything", 8), 1); /* so it must be refused before */
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(key);
}

static void key_file_is_trusted_to_its_owner_and_root(void **state) {
  (void)state;
  assert_true(hv_identity_owner_is_right(1000, 1000));
  assert_true(hv_identity_owner_is_right(0, 1000));
  assert_true(hv_identity_owner_is_right(1000, 0));
  assert_false(hv_identity_owner_is_right(1001, 1000));
}

static void sha256_gives_the_known_digests(void **state) {
  (void)state;
  hv_hash hash, expected;
  hv_identity_sha256(text_of("abc"), &hash);
  from_hex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", expected.bytes, 32);
  assert_memory_equal(hash.bytes, expected.bytes, 32);
  hv_identity_sha256(hv_span_of(NULL, 0), &hash);
  from_hex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", expected.bytes, 32);
  assert_memory_equal(hash.bytes, expected.bytes, 32);
}

typedef struct signer {
  const hv_identity *identity;
  int right;
} signer;

static void *sign_many(void *arg) {
  signer *s = arg;
  uint8_t signature[64];
  for (int i = 0; i < 200; i++)
    s->right += hv_identity_sign(s->identity, "hv:test", hv_span_of(&i, sizeof i), signature) == HV_OK &&
                hv_identity_verify(hv_identity_peer(s->identity), "hv:test", hv_span_of(&i, sizeof i), signature);
  return NULL;
}

static void threads_share_an_identity(void **state) {
  place *p = *state;
  hv_identity *identity = identity_of(&p->mem, SEED_1);
  pthread_t threads[4];
  signer signers[4];
  for (int i = 0; i < 4; i++) {
    signers[i] = (signer){.identity = identity};
    assert_int_equal(pthread_create(&threads[i], NULL, sign_many, &signers[i]), 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(signers[i].right, 200);
  }
  hv_identity_free(identity);
}

/* ---- key files ---- */

static void a_key_file_is_made_once_and_read_again(void **state) {
  place *p = *state;
  uint8_t seed[32], other[32];
  from_hex(SEED_1, seed, 32);
  from_hex(SEED_2, other, 32);
  hv_identity *made = NULL, *read = NULL;
  mode_t mask = umask(0);
  assert_int_equal(hv_identity_load(&p->mem, p->path, seed, &made, NULL), HV_OK);
  umask(mask);
  struct stat info;
  assert_int_equal(stat(p->path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0600);
  assert_int_equal(files_in(p->folder), 1); /* no draft is left */
  char text[256] = {0};
  int fd = open(p->path, O_RDONLY);
  assert_int_equal(pread(fd, text, sizeof text, 0), strlen(PEM_1));
  close(fd);
  assert_string_equal(text, PEM_1); /* as `openssl pkey` writes it */
  assert_int_equal(hv_identity_load(&p->mem, p->path, other, &read, NULL), HV_OK);
  assert_true(hv_peer_equal(hv_identity_peer(made), hv_identity_peer(read)));
  hv_identity_free(made);
  hv_identity_free(read);
}

static void load_as(place *p, hv_status status, const char *why) {
  uint8_t seed[32] = {9};
  hv_identity *identity = NULL;
  hv_error err = {0};
  hv_status got = hv_identity_load(&p->mem, p->path, seed, &identity, &err);
  if (got != status || err.status != status || !strstr(err.text, why))
    fail_msg("%s: '%s', and should have said '%s'", hv_status_name(got), err.text, why);
  assert_null(identity);
  assert_int_equal(hv_identity_load(&p->mem, p->path, seed, &identity, NULL), status);
}

static void a_file_that_others_may_read_is_refused(void **state) {
  place *p = *state;
  char remedy[160];
  snprintf(remedy, sizeof remedy, "chmod 600 %s", p->path);
  static const mode_t open_modes[] = {0640, 0604, 0620, 0602, 0610, 0601, 0777, 0444};
  for (size_t i = 0; i < sizeof open_modes / sizeof *open_modes; i++) {
    write_file(p->path, PEM_1, strlen(PEM_1), open_modes[i]);
    load_as(p, HV_PERMISSION, remedy);
  }
  static const mode_t closed_modes[] = {0600, 0400, 0700};
  for (size_t i = 0; i < sizeof closed_modes / sizeof *closed_modes; i++) {
    uint8_t seed[32] = {9};
    char text[HV_PEER_TEXT_MAX];
    hv_identity *identity = NULL;
    write_file(p->path, PEM_1, strlen(PEM_1), closed_modes[i]);
    assert_int_equal(hv_identity_load(&p->mem, p->path, seed, &identity, NULL), HV_OK);
    assert_string_equal(hv_peer_print(hv_identity_peer(identity), text), ID_1);
    hv_identity_free(identity);
  }
}

static void identity_that_is_no_plain_file_is_refused(void **state) {
  place *p = *state;
  char path[128];
  strcpy(path, p->path);
  strcpy(p->path, p->folder);
  load_as(p, HV_IO, "not a regular file");
  strcpy(p->path, path);
  assert_int_equal(mkfifo(p->path, 0600), 0);
  load_as(p, HV_IO, "not a regular file"); /* and does not wait for a writer */
  unlink(p->path);
  snprintf(p->path, sizeof p->path, "%s/no/key", p->folder);
  load_as(p, HV_IO, "folder does not exist");
  snprintf(p->path, sizeof p->path, "%s", "");
  load_as(p, HV_IO, "the identity file");
  strcpy(p->path, path);
  assert_int_equal(symlink("/nowhere/at/all", p->path), 0);
  load_as(p, HV_IO, "a dangling link");
  assert_int_equal(files_in(p->folder), 1);
  unlink(p->path);
  write_file(p->path, "", 0, 0600);
  load_as(p, HV_MALFORMED, "it is empty");
  snprintf(p->path, sizeof p->path, "%s/key/below", p->folder);
  load_as(p, HV_IO, "Not a directory");
  strcpy(p->path, path);
}

static void file_without_a_key_is_refused_and_left_alone(void **state) {
  place *p = *state;
  static char large[20000];
  memset(large, 'x', sizeof large);
  write_file(p->path, large, sizeof large, 0600);
  load_as(p, HV_MALFORMED, "larger than any key");
  write_file(p->path, "not a key", 9, 0600);
  load_as(p, HV_MALFORMED, "not a key file");
  struct stat info;
  assert_int_equal(stat(p->path, &info), 0);
  assert_int_equal(info.st_size, 9);
}

/* Runs in a child: the disk is full from the first byte on. */
static int without_room(place *p) {
  struct rlimit none = {0, 0};
  uint8_t seed[32] = {9};
  hv_identity *identity = NULL;
  hv_error err = {0};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &none);
  hv_status status = hv_identity_load(&p->mem, p->path, seed, &identity, &err);
  return status == HV_IO && !identity && strstr(err.text, "cannot write") && files_in(p->folder) == 0 ? 0 : 1;
}

static void a_file_that_cannot_be_written_whole_is_not_there(void **state) {
  place *p = *state;
  pid_t child = fork();
  if (child == 0)
    _exit(without_room(p));
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

typedef struct racer {
  place *p;
  pthread_barrier_t *start;
  uint8_t seed[32];
  hv_peer_id peer;
} racer;

static void *race(void *arg) {
  racer *r = arg;
  hv_identity *identity = NULL;
  pthread_barrier_wait(r->start);
  if (hv_identity_load(&r->p->mem, r->p->path, r->seed, &identity, NULL) == HV_OK)
    r->peer = *hv_identity_peer(identity);
  hv_identity_free(identity);
  return NULL;
}

static void threads_that_make_one_key_file_agree_on_the_key(void **state) {
  place *p = *state;
  for (int round = 0; round < 20; round++) {
    enum { RACERS = 8 };
    pthread_t threads[RACERS];
    racer racers[RACERS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, RACERS);
    for (int i = 0; i < RACERS; i++) {
      racers[i] = (racer){.p = p, .start = &start, .seed = {(uint8_t)i, (uint8_t)round, 1}};
      assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++)
      pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    for (int i = 0; i < RACERS; i++)
      assert_true(hv_peer_is_known(&racers[i].peer) && hv_peer_equal(&racers[i].peer, &racers[0].peer));
    assert_int_equal(files_in(p->folder), 1);
    unlink(p->path);
  }
}

static void parse_as(place *p, const void *bytes, size_t size, hv_status status, const char *why) {
  hv_identity *identity = NULL;
  hv_error err = {0};
  hv_status got = hv_identity_parse(&p->mem, hv_span_of(bytes, size), &identity, &err);
  if (got != status || (status != HV_OK && !strstr(err.text, why)))
    fail_msg("%s: '%s', and should have said '%s'", hv_status_name(got), err.text, why);
  if (status == HV_OK) {
    char text[HV_PEER_TEXT_MAX];
    assert_string_equal(hv_peer_print(hv_identity_peer(identity), text), why);
  } else {
    assert_null(identity);
  }
  hv_identity_free(identity);
}

/* The key of rust-libp2p's test, as libp2p and hivemind write it. */
static void libp2p_keys_are_read(void **state) {
  place *p = *state;
  uint8_t key[68];
  from_hex("08011240beaf74a42ece7428b13ad6ec5588f40b7e5d7ec405fd019d92e16fac3e37e5d2"
           "41275f22797a73b53836ec5726584a711065070f5dd2d8f675f04855fea670f0",
           key, sizeof key);
  parse_as(p, key, sizeof key, HV_OK, "12D3KooWEChVMMMzV8acJ53mJHrw1pQ27UAGkCxWXLJutbeUMvVu");
  for (size_t n = 1; n < sizeof key; n++)
    parse_as(p, key, n, HV_MALFORMED, "damaged");
  key[40] ^= 1;
  parse_as(p, key, sizeof key, HV_MALFORMED, "do not belong together");
  uint8_t rsa[1200] = {0x08, 0x00, 0x12, 0xa9, 0x09, 0x30, 0x82};
  parse_as(p, rsa, sizeof rsa, HV_MALFORMED, "an RSA key, as hivemind writes it");
  rsa[1] = 2;
  parse_as(p, rsa, 36, HV_MALFORMED, "secp256k1");
  rsa[1] = 3;
  parse_as(p, rsa, 36, HV_MALFORMED, "ECDSA");
  rsa[1] = 4;
  parse_as(p, rsa, 36, HV_MALFORMED, "damaged");
}

static char *pem_of(EVP_PKEY *key, int old_form, const char *password) {
  BIO *bio = BIO_new(BIO_s_mem());
  char *data;
  int right =
      old_form
          ? PEM_write_bio_PrivateKey_traditional(bio, key, password ? EVP_aes_128_cbc() : NULL, NULL, 0, NULL, (void *)password)
          : PEM_write_bio_PKCS8PrivateKey(bio, key, password ? EVP_aes_128_cbc() : NULL, NULL, 0, NULL, (void *)password);
  assert_int_equal(right, 1);
  long size = BIO_get_mem_data(bio, &data);
  char *text = strndup(data, (size_t)size);
  BIO_free(bio);
  return text;
}

static void other_pem_keys_are_refused_by_name(void **state) {
  place *p = *state;
  EVP_PKEY *rsa = EVP_RSA_gen(2048), *ec = EVP_EC_gen("P-256");
  hv_identity *identity = identity_of(&p->mem, SEED_1);
  uint8_t seed[32];
  from_hex(SEED_1, seed, 32);
  EVP_PKEY *ed = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32),
           *x = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, seed, 32);
  struct {
    char *text;
    hv_status status;
    const char *why;
  } cases[] = {
      {pem_of(rsa, 0, NULL), HV_MALFORMED, "rsaEncryption"},
      {pem_of(rsa, 1, NULL), HV_MALFORMED, "'RSA PRIVATE KEY'"},
      {pem_of(ec, 0, NULL), HV_MALFORMED, "id-ecPublicKey"},
      {pem_of(ec, 1, NULL), HV_MALFORMED, "'EC PRIVATE KEY'"},
      {pem_of(x, 0, NULL), HV_MALFORMED, "X25519"},
      {pem_of(ed, 0, "word"), HV_MALFORMED, "encrypted with a password"},
      {pem_of(ec, 1, "word"), HV_MALFORMED, "encrypted with a password"},
      {pem_of(ed, 0, NULL), HV_OK, ID_1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    parse_as(p, cases[i].text, strlen(cases[i].text), cases[i].status, cases[i].why);
    free(cases[i].text);
  }
  EVP_PKEY_free(rsa);
  EVP_PKEY_free(ec);
  EVP_PKEY_free(ed);
  EVP_PKEY_free(x);
  hv_identity_free(identity);
}

static void damaged_pem_keys_are_refused(void **state) {
  place *p = *state;
  size_t whole = strlen(PEM_1);
  parse_as(p, PEM_1, whole, HV_OK, ID_1);
  parse_as(p, "\n# my key\n" PEM_1, whole + 10, HV_OK, ID_1);
  for (size_t n = 0; n < whole - 2; n++)
    parse_as(p, PEM_1, n, HV_MALFORMED, "");
  parse_as(p, "-----BEGIN PUBLIC KEY-----\nMC4C\n-----END PUBLIC KEY-----\n", 58, HV_MALFORMED, "'PUBLIC KEY' and not");
  parse_as(p, "-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n", 59, HV_MALFORMED, "is damaged");
  /* a byte more behind the key */
  const char *longer =
      "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9gAA==\n-----END PRIVATE "
      "KEY-----\n";
  parse_as(p, longer, strlen(longer), HV_MALFORMED, "is damaged");
  /* 31 bytes of key */
  const char *shorter =
      "-----BEGIN PRIVATE KEY-----\nMC0CAQAwBQYDK2VwBCEEH51hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn8=\n-----END PRIVATE KEY-----\n";
  parse_as(p, shorter, strlen(shorter), HV_MALFORMED, "its Ed25519 key is damaged");
}

/* ---- what is left behind ---- */

static void the_error_queue_is_left_as_it_was(void **state) {
  place *p = *state;
  hv_identity *identity = NULL;
  hv_peer_id peer;
  uint8_t signature[64] = {0};
  ERR_clear_error();
  ERR_raise(ERR_LIB_USER, 42); /* somebody else's, on the same thread */
  unsigned long theirs = ERR_peek_error();
  assert_int_equal(
      hv_identity_parse(&p->mem, text_of("-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n"), &identity, NULL),
      HV_MALFORMED);
  assert_int_equal(
      hv_identity_check_certificate(text_of("-----BEGIN CERTIFICATE-----\nMC4C\n-----END CERTIFICATE-----\n"), NOW, &peer, NULL),
      HV_MALFORMED);
  peer = (hv_peer_id){{1}};
  assert_int_equal(hv_identity_verify(&peer, "hv:test", text_of("x"), signature), 0);
  assert_int_equal(ERR_get_error(), theirs);
  assert_int_equal(ERR_peek_error(), 0);
}

static hv_status whole_life(hv_mem *mem, void *arg) {
  place *p = arg;
  uint8_t seed[32] = {5}, signature[64];
  hv_identity *made = NULL, *read = NULL;
  char *certificate = NULL, *key = NULL;
  hv_peer_id peer;
  hv_status status = hv_identity_load(mem, p->path, seed, &made, NULL);
  if (status == HV_OK)
    status = hv_identity_load(mem, p->path, seed, &read, NULL);
  if (status == HV_OK)
    status = hv_identity_sign(made, "hv:test", hv_span_of(p->path, 3000 % sizeof p->path), signature);
  if (status == HV_OK &&
      !hv_identity_verify(hv_identity_peer(read), "hv:test", hv_span_of(p->path, 3000 % sizeof p->path), signature))
    status = HV_CRYPTO;
  if (status == HV_OK)
    status = hv_identity_certificate(read, mem, NOW, 30, &certificate, &key);
  if (status == HV_OK)
    status = hv_identity_check_certificate(text_of(certificate), NOW, &peer, NULL);
  if (status == HV_OK && !hv_peer_equal(&peer, hv_identity_peer(made)))
    status = HV_INTERNAL;
  hv_mem_free(certificate);
  hv_mem_free(key);
  hv_identity_free(made);
  hv_identity_free(read);
  assert_true(files_in(p->folder) <= 1); /* whole or not at all */
  unlink(p->path);
  return status;
}

static void a_life_without_memory_leaves_nothing_behind(void **state) {
  place *p = *state;
  assert_int_equal(check_out_of_memory(whole_life, p), 5);
}

/* The same for libcrypto's own blocks; that none is lost is for the leak sanitizer to see. */
static void a_life_without_libcryptos_memory_fails_cleanly(void **state) {
  place *p = *state;
  assert_int_equal(whole_life(&p->mem, p), HV_OK);
  for (long n = 0;; n++) {
    size_t before = atomic_load(&crypto_refused);
    atomic_store(&crypto_fail_in, n);
    hv_status status = whole_life(&p->mem, p);
    atomic_store(&crypto_fail_in, -1);
    assert_int_equal(atomic_load(&p->mem.blocks), 0);
    assert_int_equal(ERR_peek_error(), 0);
    if (atomic_load(&crypto_refused) == before) {
      assert_int_equal(status, HV_OK);
      assert_true(n > 20);
      break;
    }
  }
}

int main(void) {
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, settle, leave_tidy)
  const struct CMUnitTest tests[] = {
      IN_A_FOLDER(seeds_give_the_keys_of_rfc_8032),
      IN_A_FOLDER(signatures_are_ed25519_over_domain_and_bytes),
      IN_A_FOLDER(a_signature_holds_for_its_domain_bytes_and_key_only),
      cmocka_unit_test(weak_key_signs_nothing),
      cmocka_unit_test(key_file_is_trusted_to_its_owner_and_root),
      cmocka_unit_test(sha256_gives_the_known_digests),
      IN_A_FOLDER(threads_share_an_identity),
      IN_A_FOLDER(a_key_file_is_made_once_and_read_again),
      IN_A_FOLDER(a_file_that_others_may_read_is_refused),
      IN_A_FOLDER(identity_that_is_no_plain_file_is_refused),
      IN_A_FOLDER(file_without_a_key_is_refused_and_left_alone),
      IN_A_FOLDER(a_file_that_cannot_be_written_whole_is_not_there),
      IN_A_FOLDER(threads_that_make_one_key_file_agree_on_the_key),
      IN_A_FOLDER(libp2p_keys_are_read),
      IN_A_FOLDER(other_pem_keys_are_refused_by_name),
      IN_A_FOLDER(damaged_pem_keys_are_refused),
      IN_A_FOLDER(the_error_queue_is_left_as_it_was),
      IN_A_FOLDER(a_life_without_memory_leaves_nothing_behind),
      IN_A_FOLDER(a_life_without_libcryptos_memory_fails_cleanly),
  };
  if (!CRYPTO_set_mem_functions(crypto_malloc, crypto_realloc, crypto_free))
    return 1;
  return cmocka_run_group_tests_name("identity", tests, NULL, NULL);
}
