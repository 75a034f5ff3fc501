#define OPENSSL_SUPPRESS_DEPRECATED /* SHA256_Init and its like: they allocate nothing and cannot fail */
#include "net/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/asn1.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/objects.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_LIMIT = 8192, CERTIFICATE_LIMIT = 8192, DAY_S = 86400, DAYS_LIMIT = 36500, ATTEMPTS = 3 };
static const int64_t last_second = 253402300799; /* of the year 9999: X.509 tells no later time */

struct hv_identity {
  EVP_PKEY *key;
  hv_peer_id peer;
  uint8_t seed[32];
};

/* Between these two nothing stays on the error queue. */
static void enter(void) {
  ERR_set_mark();
}

static void leave(void) {
  ERR_pop_to_mark();
}

/* ---- keys ---- */

static hv_status make(hv_mem *mem, const uint8_t seed[32], hv_identity **out) {
  hv_identity *identity = hv_mem_zalloc(mem, sizeof *identity);
  if (!identity)
    return HV_NOMEM;
  size_t size = sizeof identity->peer.key;
  memcpy(identity->seed, seed, sizeof identity->seed);
  enter();
  identity->key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, sizeof identity->seed);
  int right = identity->key && EVP_PKEY_get_raw_public_key(identity->key, identity->peer.key, &size) == 1;
  leave();
  if (!right) {
    hv_identity_free(identity);
    return HV_CRYPTO;
  }
  *out = identity;
  return HV_OK;
}

hv_identity *hv_identity_from_seed(hv_mem *mem, const uint8_t seed[32]) {
  hv_identity *identity = NULL;
  return make(mem, seed, &identity) == HV_OK ? identity : NULL;
}

void hv_identity_free(hv_identity *identity) {
  if (!identity)
    return;
  EVP_PKEY_free(identity->key);
  OPENSSL_cleanse(identity, sizeof *identity);
  hv_mem_free(identity);
}

const hv_peer_id *hv_identity_peer(const hv_identity *identity) {
  return &identity->peer;
}

/* ---- a key as PEM: PKCS #8 (RFC 8410), always of one size ---- */

enum { DER_SIZE = 48, PEM_SIZE = 28 + 65 + 26 };

static void print_key(const hv_identity *identity, char out[PEM_SIZE + 1]) {
  static const uint8_t head[] = {0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};
  uint8_t der[DER_SIZE];
  memcpy(der, head, sizeof head);
  memcpy(der + sizeof head, identity->seed, sizeof identity->seed);
  char *at = stpcpy(out, "-----BEGIN PRIVATE KEY-----\n");
  at += EVP_EncodeBlock((unsigned char *)at, der, sizeof der);
  strcpy(at, "\n-----END PRIVATE KEY-----\n");
  OPENSSL_cleanse(der, sizeof der);
}

/* ---- reading key files ---- */

static hv_status parse_pkcs8(const uint8_t *der, long size, uint8_t seed[32], hv_error *err) {
  const uint8_t *at = der, *octets = NULL; /* of an OCTET STRING (04) with 32 bytes (20) */
  const ASN1_OBJECT *kind = NULL;
  int n = 0;
  hv_status status = HV_OK;
  PKCS8_PRIV_KEY_INFO *info = d2i_PKCS8_PRIV_KEY_INFO(NULL, &at, size);
  if (!info || at != der + size || !PKCS8_pkey_get0(&kind, &octets, &n, NULL, info))
    status = hv_fail(err, HV_MALFORMED,
                     "its private key is damaged; restore the file, or give another path, where a new key is created");
  else if (OBJ_obj2nid(kind) != NID_ED25519)
    status =
        hv_fail(err, HV_MALFORMED,
                "it holds another kind of key (%s), and only Ed25519 is supported; give another path, where a new key is created",
                OBJ_nid2sn(OBJ_obj2nid(kind)));
  else if (n != 34 || octets[0] != 0x04 || octets[1] != 0x20)
    status = hv_fail(err, HV_MALFORMED,
                     "its Ed25519 key is damaged; restore the file, or give another path, where a new key is created");
  else
    memcpy(seed, octets + 2, 32);
  PKCS8_PRIV_KEY_INFO_free(info);
  return status;
}

static hv_status parse_pem(hv_span bytes, uint8_t seed[32], hv_error *err) {
  char *name = NULL, *header = NULL;
  unsigned char *der = NULL;
  long size = 0;
  hv_status status = HV_OK;
  BIO *bio = BIO_new_mem_buf(bytes.data, (int)bytes.size);
  if (!bio)
    status = hv_fail(err, HV_NOMEM, "out of memory");
  else if (PEM_read_bio(bio, &name, &header, &der, &size) != 1)
    status = hv_fail(
        err, HV_MALFORMED,
        "it is not a key file (PEM with BEGIN PRIVATE KEY, or a libp2p key); give another path, where a new key is created");
  else if (strstr(name, "ENCRYPTED") || strstr(header, "ENCRYPTED"))
    status = hv_fail(err, HV_MALFORMED, "its key is encrypted with a password; decrypt it with openssl pkey, or give another path");
  else if (strcmp(name, "PRIVATE KEY") != 0) {
    char quote[HV_QUOTE_MAX];
    status = hv_fail(err, HV_MALFORMED,
                     "it holds '%s' and not an Ed25519 key ('PRIVATE KEY'); give another path, where a new key is created",
                     hv_span_quote(hv_span_of(name, strlen(name)), quote));
  } else
    status = parse_pkcs8(der, size, seed, err);
  OPENSSL_free(name);
  OPENSSL_free(header);
  OPENSSL_clear_free(der, (size_t)size);
  BIO_free(bio);
  return status;
}

/* libp2p's protobuf: field 1 is the kind of key, field 2 its bytes; for Ed25519 the seed and the public key. */
static hv_status parse_protobuf(hv_span bytes, uint8_t seed[32], hv_error *err) {
  static const uint8_t ed25519[] = {0x08, 0x01, 0x12, 0x40};
  if (bytes.size > 2 && bytes.data[1] != 1 && bytes.data[1] < 4 && bytes.data[2] == 0x12)
    return hv_fail(
        err, HV_MALFORMED,
        "it holds %s key, as hivemind writes it, and only Ed25519 is supported; give another path, where a new key is created",
        bytes.data[1] == 0   ? "an RSA"
        : bytes.data[1] == 2 ? "a secp256k1"
                             : "an ECDSA");
  if (bytes.size != sizeof ed25519 + 64 || memcmp(bytes.data, ed25519, sizeof ed25519) != 0)
    return hv_fail(err, HV_MALFORMED,
                   "it looks like a libp2p key but is damaged; restore the file, or give another path, where a new key is created");
  memcpy(seed, bytes.data + sizeof ed25519, 32);
  return HV_OK;
}

hv_status hv_identity_parse(hv_mem *mem, hv_span bytes, hv_identity **out, hv_error *err) {
  uint8_t seed[32] = {0};
  hv_identity *identity = NULL;
  int protobuf = bytes.size > 0 && bytes.data[0] == 0x08;
  if (bytes.size > FILE_LIMIT)
    return hv_fail(err, HV_MALFORMED, "it is larger than any key (%d bytes); give another path, where a new key is created",
                   FILE_LIMIT);
  if (bytes.size == 0)
    return hv_fail(err, HV_MALFORMED, "it is empty; remove it, and a new key is created there");
  enter();
  hv_status status = protobuf ? parse_protobuf(bytes, seed, err) : parse_pem(bytes, seed, err);
  leave();
  if (status == HV_OK) {
    status = make(mem, seed, &identity);
    if (status != HV_OK)
      hv_fail(err, status, "%s", hv_status_text(status));
    else if (protobuf && memcmp(identity->peer.key, bytes.data + 36, sizeof identity->peer.key) != 0)
      status =
          hv_fail(err, HV_MALFORMED, "the two halves of its key do not belong together; restore the file, or give another path");
  }
  OPENSSL_cleanse(seed, sizeof seed);
  if (status == HV_OK)
    *out = identity;
  else
    hv_identity_free(identity);
  return status;
}

/* All there is, up to room; -1: errno tells. */
static ssize_t read_all(int fd, uint8_t *out, size_t room) {
  size_t size = 0;
  while (size < room) {
    ssize_t n = read(fd, out + size, room - size);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return -1;
    if (n == 0)
      break;
    size += (size_t)n;
  }
  return (ssize_t)size;
}

static int write_all(int fd, const char *data, size_t size) {
  while (size) {
    ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return 0;
    data += n;
    size -= (size_t)n;
  }
  return 1;
}

int hv_identity_owner_is_right(uint32_t owner, uint32_t me) {
  return owner == me || owner == 0 || me == 0;
}

/* HV_NOT_FOUND (without a sentence): there is no such file. */
static hv_status load_file(hv_mem *mem, const char *path, hv_identity **out, hv_error *err) {
  uint8_t bytes[FILE_LIMIT + 1];
  struct stat info;
  ssize_t size = 0;
  hv_error why = {0};
  hv_status status;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe in its place must not hold us up */
  if (fd < 0 && errno == ENOENT)
    return HV_NOT_FOUND;
  if (fd < 0 || fstat(fd, &info) != 0)
    status = hv_fail(err, HV_IO, "cannot open the identity file: %m; check its path and permissions: %s", path);
  else if (!S_ISREG(info.st_mode))
    status = hv_fail(err, HV_IO, "cannot use the identity file: it is not a regular file; give the path of a file: %s", path);
  else if (info.st_mode & 077)
    status = hv_fail_by(err, HV_PERMISSION, HV_CAUSE_KEY_EXPOSED,
                        "cannot use the identity file: other users may read it (mode %04o); run chmod 600 %s",
                        (unsigned)info.st_mode & 07777, path);
  else if (!hv_identity_owner_is_right(info.st_uid, geteuid()))
    status = hv_fail_by(err, HV_PERMISSION, HV_CAUSE_KEY_EXPOSED,
                        "cannot use the identity file: another user (number %u) owns it and can change it; give the path of a file "
                        "of your own: %s",
                        (unsigned)info.st_uid, path);
  else if ((size = read_all(fd, bytes, sizeof bytes)) < 0)
    status = hv_fail(err, HV_IO, "cannot read the identity file: %m; check its permissions: %s", path);
  else if ((status = hv_identity_parse(mem, hv_span_of(bytes, (size_t)size), out, &why)) != HV_OK)
    hv_fail_by(err, status, status == HV_MALFORMED ? HV_CAUSE_BAD_KEY : why.cause, "cannot use the identity file %.600s: %s", path,
               why.text);
  OPENSSL_cleanse(bytes, sizeof bytes);
  if (fd >= 0)
    close(fd);
  return status;
}

/* ---- making key files ---- */

/* Makes the entry in the folder outlive a power cut, where the system can do that. */
static void sync_folder(char *path) {
  char *slash = strrchr(path, '/');
  if (slash)
    slash[slash == path] = 0;
  int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    fsync(fd);
    close(fd);
  }
}

/* Writes the whole file under a name of its own, then gives it its name. HV_EXISTS: somebody else was faster. */
static hv_status make_file(hv_mem *mem, const char *path, const hv_identity *identity, hv_error *err) {
  char pem[PEM_SIZE + 1], id[HV_PEER_TEXT_MAX];
  size_t room = strlen(path) + 32;
  char *draft = hv_mem_alloc(mem, room);
  hv_status status = HV_OK;
  if (!draft)
    return hv_fail(err, HV_NOMEM, "out of memory");
  snprintf(draft, room, "%s.%.12s.new", path, hv_peer_print(&identity->peer, id) + 40); /* no two keys, no two drafts */
  print_key(identity, pem);
  int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    status =
        errno == ENOENT
            ? hv_fail(err, HV_IO, "cannot create the identity file: its folder does not exist; create the folder first: %s", path)
            : hv_fail(err, HV_IO, "cannot create the identity file: %m; check the folder's permissions: %s", path);
  else if (fchmod(fd, 0600) != 0 || !write_all(fd, pem, PEM_SIZE) || fsync(fd) != 0)
    status = hv_fail(err, HV_IO, "cannot write the identity file: %m; check the disk's free space: %s", path);
  else if (link(draft, path) != 0)
    status = errno == EEXIST
                 ? HV_EXISTS
                 : hv_fail(err, HV_IO, "cannot create the identity file: %m; use a file system with hard links: %s", path);
  if (fd >= 0) {
    close(fd);
    unlink(draft);
  }
  if (status == HV_OK)
    sync_folder(draft);
  OPENSSL_cleanse(pem, sizeof pem);
  hv_mem_free(draft);
  return status;
}

hv_status hv_identity_load(hv_mem *mem, const char *path, const uint8_t seed[32], hv_identity **out, hv_error *err) {
  for (int i = 0; i < ATTEMPTS; i++) {
    hv_identity *identity = NULL;
    hv_status status = load_file(mem, path, out, err);
    if (status != HV_NOT_FOUND)
      return status;
    if ((status = make(mem, seed, &identity)) != HV_OK)
      return hv_fail(err, status, "cannot create a key: %s", hv_status_text(status));
    status = make_file(mem, path, identity, err);
    if (status == HV_OK) {
      *out = identity;
      return HV_OK;
    }
    hv_identity_free(identity);
    if (status != HV_EXISTS)
      return status;
  }
  return hv_fail(err, HV_IO,
                 "cannot use the identity file: it exists but cannot be read or created (perhaps it is a dangling link); remove "
                 "it, or give another path: %s",
                 path);
}

/* ---- signatures ---- */

/* domain, a zero byte, bytes: in small if they fit there, else in a block of libcrypto's. NULL: no memory. */
static uint8_t *join(const char *domain, hv_span bytes, uint8_t *small, size_t room, size_t *size) {
  size_t n = strlen(domain) + 1;
  if (bytes.size > SIZE_MAX - n)
    return NULL;
  *size = n + bytes.size;
  uint8_t *all = *size <= room ? small : OPENSSL_malloc(*size);
  if (!all)
    return NULL;
  memcpy(all, domain, n);
  if (bytes.size)
    memcpy(all + n, bytes.data, bytes.size);
  return all;
}

hv_status hv_identity_sign(const hv_identity *identity, const char *domain, hv_span bytes, uint8_t out[64]) {
  uint8_t small[512];
  size_t size, signature_size = 64;
  enter();
  uint8_t *all = join(domain, bytes, small, sizeof small, &size);
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  hv_status status = all && context ? HV_OK : HV_NOMEM;
  if (status == HV_OK && (EVP_DigestSignInit(context, NULL, NULL, NULL, identity->key) != 1 ||
                          EVP_DigestSign(context, out, &signature_size, all, size) != 1))
    status = HV_CRYPTO;
  EVP_MD_CTX_free(context);
  if (all != small)
    OPENSSL_free(all);
  leave();
  return status;
}

int hv_identity_verify(const hv_peer_id *peer, const char *domain, hv_span bytes, const uint8_t signature[64]) {
  uint8_t small[512];
  size_t size;
  if (hv_peer_is_weak(peer))
    return 0;
  enter();
  uint8_t *all = join(domain, bytes, small, sizeof small, &size);
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, peer->key, sizeof peer->key);
  int right = all && context && key && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) == 1 &&
              EVP_DigestVerify(context, signature, 64, all, size) == 1;
  EVP_PKEY_free(key);
  EVP_MD_CTX_free(context);
  if (all != small)
    OPENSSL_free(all);
  leave();
  return right;
}

void hv_identity_sha256(hv_span bytes, hv_hash *out) {
  SHA256_CTX context;
  SHA256_Init(&context);
  if (bytes.size)
    SHA256_Update(&context, bytes.data, bytes.size);
  SHA256_Final(out->bytes, &context);
}

/* ---- certificates ---- */

/* 16 bytes that look random and differ from key to key and second to second. */
static int set_serial(X509 *certificate, const hv_peer_id *peer, int64_t now_s) {
  static const char domain[] = "hv:serial";
  uint8_t bytes[sizeof domain + 32 + 8];
  hv_hash hash;
  memcpy(bytes, domain, sizeof domain);
  memcpy(bytes + sizeof domain, peer->key, 32);
  for (int i = 0; i < 8; i++)
    bytes[sizeof domain + 32 + i] = (uint8_t)((uint64_t)now_s >> (56 - 8 * i));
  hv_identity_sha256(hv_span_of(bytes, sizeof bytes), &hash);
  hash.bytes[0] = (hash.bytes[0] & 0x7f) | 0x40; /* positive, and of one length */
  return ASN1_STRING_set(X509_get_serialNumber(certificate), hash.bytes, 16);
}

/* The object identifier of the extension: a UUID, which needs no registration. It is made each time, because libcrypto's table of
 * names is shared with the whole process. */
static ASN1_OBJECT *kind_of_extension(void) {
  return OBJ_txt2obj("2.25.14474288207669713937082572112496932194", 1);
}

static int add_extension(X509 *certificate, hv_span bytes) {
  ASN1_OBJECT *kind = kind_of_extension();
  ASN1_OCTET_STRING *octets = ASN1_OCTET_STRING_new();
  X509_EXTENSION *extension = NULL;
  int right = kind && octets && ASN1_OCTET_STRING_set(octets, bytes.data, (int)bytes.size) &&
              (extension = X509_EXTENSION_create_by_OBJ(NULL, kind, 0, octets)) && X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
  ASN1_OCTET_STRING_free(octets);
  ASN1_OBJECT_free(kind);
  return right;
}

static void read_extension(const X509 *certificate, hv_extension *out) {
  ASN1_OBJECT *kind = kind_of_extension();
  int at = kind ? X509_get_ext_by_OBJ(certificate, kind, -1) : -1;
  const ASN1_OCTET_STRING *octets = at < 0 ? NULL : X509_EXTENSION_get_data(X509_get_ext(certificate, at));
  int size = octets ? ASN1_STRING_length(octets) : 0;
  out->size = size > 0 && (size_t)size <= sizeof out->bytes ? (size_t)size : 0;
  if (out->size)
    memcpy(out->bytes, ASN1_STRING_get0_data(octets), out->size);
  ASN1_OBJECT_free(kind);
}

static hv_status fill(X509 *certificate, const hv_identity *identity, hv_span extension, int64_t from_s, int64_t until_s,
                      int64_t now_s) {
  char id[HV_PEER_TEXT_MAX];
  hv_peer_print(&identity->peer, id);
  X509_NAME *name = X509_get_subject_name(certificate);
  int right = X509_set_version(certificate, 2) && set_serial(certificate, &identity->peer, now_s) &&
              X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)id, -1, -1, 0) &&
              X509_set_issuer_name(certificate, name) && ASN1_TIME_set(X509_getm_notBefore(certificate), (time_t)from_s) &&
              ASN1_TIME_set(X509_getm_notAfter(certificate), (time_t)until_s) && X509_set_pubkey(certificate, identity->key) &&
              (!extension.size || add_extension(certificate, extension)) && X509_sign(certificate, identity->key, NULL) > 0;
  return right ? HV_OK : HV_CRYPTO;
}

hv_status hv_identity_certificate(const hv_identity *identity, hv_mem *mem, int64_t now_s, int days, char **certificate,
                                  char **key) {
  return hv_identity_certificate_with(identity, mem, hv_span_of(NULL, 0), now_s, days, certificate, key);
}

hv_status hv_identity_certificate_with(const hv_identity *identity, hv_mem *mem, hv_span extension, int64_t now_s, int days,
                                       char **certificate, char **key) {
  if (days < 1 || days > DAYS_LIMIT || now_s < DAY_S || now_s > last_second - (int64_t)days * DAY_S)
    return HV_INVALID;
  char *text = NULL, *certificate_text = NULL, *key_text = hv_mem_alloc(mem, PEM_SIZE + 1);
  hv_status status = key_text ? HV_OK : HV_NOMEM;
  enter();
  X509 *x509 = X509_new();
  BIO *bio = BIO_new(BIO_s_mem());
  if (status == HV_OK)
    status = x509 && bio ? fill(x509, identity, extension, now_s - DAY_S, now_s + (int64_t)days * DAY_S, now_s) : HV_NOMEM;
  if (status == HV_OK && PEM_write_bio_X509(bio, x509) != 1)
    status = HV_CRYPTO;
  if (status == HV_OK) {
    long size = BIO_get_mem_data(bio, &text);
    certificate_text = hv_mem_text(mem, text, (size_t)size);
    status = certificate_text ? HV_OK : HV_NOMEM;
  }
  X509_free(x509);
  BIO_free(bio);
  leave();
  if (status != HV_OK) {
    hv_mem_free(key_text);
    return status;
  }
  print_key(identity, key_text);
  *certificate = certificate_text;
  *key = key_text;
  return HV_OK;
}

/* The one certificate in the text; NULL when it is not exactly that. */
static X509 *parse_certificate(hv_span pem) {
  char *name = NULL, *header = NULL;
  unsigned char *der = NULL;
  long size = 0;
  X509 *x509 = NULL;
  BIO *bio = BIO_new_mem_buf(pem.data, (int)pem.size);
  if (bio && PEM_read_bio(bio, &name, &header, &der, &size) == 1 && strcmp(name, "CERTIFICATE") == 0) {
    const unsigned char *at = der;
    x509 = d2i_X509(NULL, &at, size);
    if (at != der + size) {
      X509_free(x509);
      x509 = NULL;
    }
  }
  OPENSSL_free(name);
  OPENSSL_free(header);
  OPENSSL_free(der);
  name = header = NULL;
  der = NULL;
  if (x509 && PEM_read_bio(bio, &name, &header, &der, &size) == 1) { /* there is another one */
    X509_free(x509);
    x509 = NULL;
  }
  OPENSSL_free(name);
  OPENSSL_free(header);
  OPENSSL_free(der);
  BIO_free(bio);
  return x509;
}

/* When a time of a certificate is, in seconds since 1970, and as text. 0: it is no time. */
static int read_time(const ASN1_TIME *time, int64_t *out_s, char text[32]) {
  struct tm when;
  if (ASN1_TIME_to_tm(time, &when) != 1)
    return 0;
  *out_s = (int64_t)timegm(&when);
  return strftime(text, 32, "%Y-%m-%d %H:%M UTC", &when) > 0;
}

static hv_status check_times(const X509 *x509, int64_t now_s, const char *id, hv_error *err) {
  int64_t from_s, until_s;
  char from[32], until[32];
  if (!read_time(X509_get0_notBefore(x509), &from_s, from) || !read_time(X509_get0_notAfter(x509), &until_s, until))
    return hv_fail(err, HV_MALFORMED, "the certificate of %s has no readable dates; restart that peer", id);
  if (until_s < now_s - DAY_S)
    return hv_fail_by(err, HV_DENIED, HV_CAUSE_CLOCK,
                      "the certificate of %s expired at %s; restart that peer, or set the clock of either machine", id, until);
  if (from_s > now_s + DAY_S)
    return hv_fail_by(err, HV_DENIED, HV_CAUSE_CLOCK,
                      "the certificate of %s is not valid before %s; set the clock of either machine", id, from);
  return HV_OK;
}

static hv_status check(X509 *x509, int64_t now_s, hv_peer_id *out, hv_error *err) {
  char id[HV_PEER_TEXT_MAX];
  size_t size = sizeof out->key;
  hv_peer_id peer = {{0}};
  EVP_PKEY *key = X509_get0_pubkey(x509);
  X509_ALGOR *algorithm = NULL;
  const ASN1_OBJECT *kind = NULL;
  X509_PUBKEY_get0_param(NULL, NULL, NULL, &algorithm, X509_get_X509_PUBKEY(x509));
  X509_ALGOR_get0(&kind, NULL, NULL, algorithm);
  if (OBJ_obj2nid(kind) != NID_ED25519)
    return hv_fail(
        err, HV_DENIED,
        "the certificate has another kind of key (%s), and only Ed25519 is supported; check that the address is a peer's",
        OBJ_nid2sn(OBJ_obj2nid(kind)));
  if (!key || EVP_PKEY_get_raw_public_key(key, peer.key, &size) != 1 || size != sizeof peer.key || hv_peer_is_weak(&peer))
    return hv_fail(err, HV_MALFORMED,
                   "the certificate holds no Ed25519 key that proves an identity; check that the address is a peer's");
  hv_peer_print(&peer, id);
  if (X509_verify(x509, key) != 1)
    return hv_fail(err, HV_DENIED,
                   "the certificate of %s is signed by another key than its own; check that the address is a peer's", id);
  hv_status status = check_times(x509, now_s, id, err);
  if (status == HV_OK)
    *out = peer;
  return status;
}

hv_status hv_identity_check_certificate(hv_span pem, int64_t now_s, hv_peer_id *out, hv_error *err) {
  return hv_identity_read_certificate(pem, now_s, out, NULL, err);
}

hv_status hv_identity_read_certificate(hv_span pem, int64_t now_s, hv_peer_id *out, hv_extension *extension, hv_error *err) {
  if (pem.size > CERTIFICATE_LIMIT)
    return hv_fail(err, HV_MALFORMED, "the certificate has %zu bytes, and the limit is %d; check that the address is a peer's",
                   pem.size, CERTIFICATE_LIMIT);
  if (now_s < 0 || now_s > last_second)
    return hv_fail_by(err, HV_INVALID, HV_CAUSE_CLOCK,
                      "cannot check a certificate: this machine's clock shows an impossible time; set the clock");
  enter();
  X509 *x509 = pem.size ? parse_certificate(pem) : NULL;
  hv_status status =
      x509 ? check(x509, now_s, out, err)
           : hv_fail(err, HV_MALFORMED, "the peer did not send exactly one certificate; check that the address is a peer's");
  if (status == HV_OK && extension)
    read_extension(x509, extension);
  X509_free(x509);
  leave();
  return status;
}
