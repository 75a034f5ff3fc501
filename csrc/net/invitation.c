#include "net/invitation.h"

#include <stdio.h>
#include <string.h>

enum {
  CHECK = 4, /* bytes of a hash at the end of a text, by which a cut or a wrong letter is noticed */
  KEY_BYTES = 32 + CHECK,
  INVITE_BYTES_LEAST = 32 + 32 + 8 + 64 + CHECK,
  INVITE_BYTES_MAX = INVITE_BYTES_LEAST + HV_INVITATION_NAME_MAX,
  STATEMENT_MAX = 32 + 32 + 8 + HV_INVITATION_NAME_MAX,
  PROOF_VERSION = 1,
  PROOF_HEAD = 2 + 32 + 64,
  PROOF_INVITED = PROOF_HEAD + 32 + 8 + 64
};

static const char key_prefix[] = "hvk1", invite_prefix[] = "hvi1"; /* the last letter is the version */
static const char statement_domain[] = "hv:invitation", peer_domain[] = "hv:member";

/* ---- text: base64 with the letters of URLs, without padding ---- */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static void encode(const uint8_t *bytes, size_t size, char *out) {
  uint32_t held = 0;
  int bits = 0;
  for (size_t i = 0; i < size; i++) {
    held = held << 8 | bytes[i];
    for (bits += 8; bits >= 6; bits -= 6)
      *out++ = letters[held >> (bits - 6) & 63];
  }
  if (bits)
    *out++ = letters[held << (6 - bits) & 63];
  *out = 0;
}

/* The number of bytes in the text; 0: it is none, or has more than room. */
static size_t decode(hv_span text, uint8_t *out, size_t room) {
  uint32_t held = 0;
  int bits = 0;
  size_t n = 0;
  if (text.size % 4 == 1)
    return 0;
  for (size_t i = 0; i < text.size; i++) {
    const char *letter = text.data[i] ? strchr(letters, text.data[i]) : NULL;
    if (!letter)
      return 0;
    held = held << 6 | (uint32_t)(letter - letters);
    bits += 6;
    if (bits < 8)
      continue;
    if (n == room)
      return 0;
    bits -= 8;
    out[n++] = (uint8_t)(held >> bits);
  }
  return held & ((1u << bits) - 1) ? 0 : n; /* one text for the same bytes */
}

/* The first bytes of a hash over the prefix and the bytes. */
static void check_of(const char *prefix, const uint8_t *bytes, size_t size, uint8_t out[CHECK]) {
  uint8_t all[4 + INVITE_BYTES_MAX];
  hv_hash hash;
  memcpy(all, prefix, 4);
  memcpy(all + 4, bytes, size);
  hv_identity_sha256(hv_span_of(all, 4 + size), &hash);
  memcpy(out, hash.bytes, CHECK);
  explicit_bzero(all, sizeof all);
}

/* Appends the check to the bytes (there is room), and writes the text. */
static void print_text(const char *prefix, uint8_t *bytes, size_t size, char *out) {
  check_of(prefix, bytes, size, bytes + size);
  memcpy(out, prefix, 4);
  encode(bytes, size + CHECK, out + 4);
}

/* Reads the bytes of a text without the check, and returns their number. 0: err says why it is none. `what` names it in full. */
static size_t parse_text(const char *prefix, const char *what, hv_span text, uint8_t *out, size_t room, hv_error *err) {
  uint8_t check[CHECK];
  if (text.size < 4 || memcmp(text.data, prefix, 4) != 0) {
    hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION,
               "this is not %s: it does not begin with %s; give the whole text, without spaces", what, prefix);
    return 0;
  }
  size_t size = decode(hv_span_of(text.data + 4, text.size - 4), out, room);
  if (size > CHECK)
    check_of(prefix, out, size - CHECK, check);
  if (size > CHECK && memcmp(check, out + size - CHECK, CHECK) == 0)
    return size - CHECK;
  hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION,
             "cannot read %s: it is cut, or a letter is wrong; copy the whole text again, without spaces", what);
  return 0;
}

static hv_identity *identity_of(hv_mem *mem, const uint8_t seed[32], hv_error *err) {
  hv_identity *identity = hv_identity_from_seed(mem, seed);
  if (!identity)
    hv_fail(err, HV_CRYPTO, "cannot use the key: libcrypto failed, or memory ran out; raise the memory limit");
  return identity;
}

/* ---- keys ---- */

void hv_swarm_key_print(const uint8_t seed[32], char out[HV_SWARM_KEY_TEXT_MAX]) {
  uint8_t bytes[KEY_BYTES];
  memcpy(bytes, seed, 32);
  print_text(key_prefix, bytes, 32, out);
  explicit_bzero(bytes, sizeof bytes);
}

hv_status hv_swarm_key_parse(hv_mem *mem, hv_span text, hv_identity **out, hv_error *err) {
  uint8_t bytes[KEY_BYTES];
  hv_status status = HV_OK;
  size_t size = parse_text(key_prefix, "a swarm key", text, bytes, sizeof bytes, err);
  if (size != 32)
    status = size ? hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION,
                               "this is not a swarm key: it is too short; give the whole text")
                  : HV_MALFORMED;
  else if (!(*out = identity_of(mem, bytes, err)))
    status = HV_CRYPTO;
  explicit_bzero(bytes, sizeof bytes);
  return status;
}

/* ---- invitations ---- */

/* The bytes that the swarm's key signs. */
static size_t statement_of(const hv_peer_id *swarm, const hv_invitation *invitation, uint8_t out[STATEMENT_MAX]) {
  size_t name = strlen(invitation->name);
  memcpy(out, swarm->key, 32);
  memcpy(out + 32, invitation->key.key, 32);
  hv_le_put(out + 64, (uint64_t)invitation->end_s, 8);
  memcpy(out + 72, invitation->name, name);
  return 72 + name;
}

/* Reads an end and a name; 0: they are none. */
static int read_end_and_name(const uint8_t *end, hv_span name, hv_invitation *out) {
  uint64_t end_s = hv_le_get(end, 8);
  if (end_s > HV_INVITATION_LAST_S || !hv_invitation_name_is_right(name))
    return 0;
  out->end_s = (int64_t)end_s;
  memset(out->name, 0, sizeof out->name);
  if (name.size)
    memcpy(out->name, name.data, name.size);
  return 1;
}

hv_status hv_invite_make(hv_mem *mem, const hv_identity *swarm_key, const uint8_t seed[32], int64_t end_s, const char *name,
                         char out[HV_INVITE_TEXT_MAX], hv_invitation *invitation, hv_error *err) {
  uint8_t bytes[INVITE_BYTES_MAX], statement[STATEMENT_MAX];
  size_t size = strlen(name);
  if (!hv_invitation_name_is_right(hv_span_of(name, size)))
    return hv_fail(err, HV_INVALID, "cannot make the invitation: a name has at most %d letters, digits and \"-_.\"",
                   HV_INVITATION_NAME_MAX);
  if (end_s < 0 || end_s > HV_INVITATION_LAST_S)
    return hv_fail(err, HV_INVALID, "cannot make the invitation: its end is no time before the year 10000; give fewer days");
  hv_identity *secret = identity_of(mem, seed, err);
  if (!secret)
    return HV_CRYPTO;
  *invitation = (hv_invitation){.key = *hv_identity_peer(secret), .end_s = end_s};
  hv_identity_free(secret);
  memcpy(invitation->name, name, size);
  const hv_peer_id *swarm = hv_identity_peer(swarm_key);
  memcpy(bytes, seed, 32);
  memcpy(bytes + 32, swarm->key, 32);
  hv_le_put(bytes + 64, (uint64_t)end_s, 8);
  hv_status status =
      hv_identity_sign(swarm_key, statement_domain, hv_span_of(statement, statement_of(swarm, invitation, statement)), bytes + 72);
  memcpy(bytes + 136, name, size);
  if (status == HV_OK)
    print_text(invite_prefix, bytes, 136 + size, out);
  else
    hv_fail(err, status, "cannot sign the invitation: %s", hv_status_text(status));
  explicit_bzero(bytes, sizeof bytes);
  return status;
}

hv_status hv_invite_seed(hv_span text, const hv_identity *swarm_key, uint8_t seed[32], hv_error *err) {
  uint8_t bytes[INVITE_BYTES_MAX];
  size_t size = parse_text(invite_prefix, "an invitation", text, bytes, sizeof bytes, err);
  hv_status status = size ? HV_OK : HV_MALFORMED;
  if (size && (size < INVITE_BYTES_LEAST - CHECK || memcmp(bytes + 32, hv_identity_peer(swarm_key)->key, 32) != 0))
    status = hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION,
                        "cannot renew the invitation: it belongs to another swarm; give the key of that swarm");
  if (status == HV_OK)
    memcpy(seed, bytes, 32);
  explicit_bzero(bytes, sizeof bytes);
  return status;
}

/* ---- credentials ---- */

static int is_granted(const hv_peer_id *swarm, const hv_invitation *invitation, const uint8_t signature[64]) {
  uint8_t statement[STATEMENT_MAX];
  return hv_identity_verify(swarm, statement_domain, hv_span_of(statement, statement_of(swarm, invitation, statement)), signature);
}

static hv_status read_invite(hv_mem *mem, hv_span text, hv_credentials *out, hv_error *err) {
  uint8_t bytes[INVITE_BYTES_MAX];
  hv_invitation *invitation = &out->admission.me.invitation;
  size_t size = parse_text(invite_prefix, "an invitation", text, bytes, sizeof bytes, err);
  hv_status status = size ? HV_OK : HV_MALFORMED;
  if (status == HV_OK &&
      (size < INVITE_BYTES_LEAST - CHECK || !read_end_and_name(bytes + 64, hv_span_of(bytes + 136, size - 136), invitation)))
    status = hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION,
                        "this is not an invitation that this version can read; upgrade hivemind_c, or ask for a new invitation");
  if (status == HV_OK && !(out->signer = identity_of(mem, bytes, err)))
    status = HV_CRYPTO;
  if (status == HV_OK) {
    memcpy(out->admission.swarm.key, bytes + 32, 32);
    memcpy(out->signature, bytes + 72, 64);
    out->admission.me.kind = HV_MEMBERSHIP_INVITED;
    invitation->key = *hv_identity_peer(out->signer);
    if (!is_granted(&out->admission.swarm, invitation, out->signature))
      status = hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION,
                          "this invitation is not signed by its swarm's key; ask a holder of the key for a new one");
  }
  explicit_bzero(bytes, sizeof bytes);
  return status;
}

/* Of both, the key counts. */
static hv_status take_key(hv_mem *mem, hv_span text, hv_credentials *out, hv_error *err) {
  hv_identity *key = NULL;
  hv_status status = hv_swarm_key_parse(mem, text, &key, err);
  if (status != HV_OK)
    return status;
  int differ = out->signer && !hv_peer_equal(&out->admission.swarm, hv_identity_peer(key));
  hv_identity_free(out->signer);
  *out = (hv_credentials){.signer = key};
  out->admission.swarm = *hv_identity_peer(key);
  out->admission.me.kind = HV_MEMBERSHIP_HOLDER;
  return differ ? hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION,
                             "the swarm key and the invitation belong to two swarms; give one of them alone")
                : HV_OK;
}

hv_status hv_credentials_read(hv_mem *mem, const char *swarm_key, const char *invite, hv_credentials *out, hv_error *err) {
  *out = (hv_credentials){0};
  hv_status status = invite ? read_invite(mem, hv_span_of(invite, strlen(invite)), out, err) : HV_OK;
  if (status == HV_OK && swarm_key)
    status = take_key(mem, hv_span_of(swarm_key, strlen(swarm_key)), out, err);
  if (status != HV_OK)
    hv_credentials_fini(out);
  return status;
}

void hv_credentials_fini(hv_credentials *credentials) {
  hv_identity_free(credentials->signer);
  *credentials = (hv_credentials){0};
}

/* ---- proofs ---- */

hv_status hv_proof_parse(hv_span bytes, hv_proof *out) {
  const uint8_t *at = bytes.data;
  *out = (hv_proof){0};
  if (bytes.size < PROOF_HEAD || bytes.size > HV_PROOF_MAX || at[0] != PROOF_VERSION)
    return HV_MALFORMED;
  memcpy(out->swarm.key, at + 2, 32);
  memcpy(out->signature, at + 34, 64);
  if (at[1] == HV_MEMBERSHIP_HOLDER && bytes.size == PROOF_HEAD) {
    out->shown.kind = HV_MEMBERSHIP_HOLDER;
    return HV_OK;
  }
  if (at[1] != HV_MEMBERSHIP_INVITED || bytes.size < PROOF_INVITED ||
      !read_end_and_name(at + PROOF_HEAD + 32, hv_span_of(at + PROOF_INVITED, bytes.size - PROOF_INVITED), &out->shown.invitation))
    return HV_MALFORMED;
  out->shown.kind = HV_MEMBERSHIP_INVITED;
  memcpy(out->shown.invitation.key.key, at + PROOF_HEAD, 32);
  memcpy(out->granted, at + PROOF_HEAD + 40, 64);
  return HV_OK;
}

size_t hv_proof_print(const hv_proof *proof, uint8_t out[HV_PROOF_MAX]) {
  const hv_invitation *invitation = &proof->shown.invitation;
  size_t name = strlen(invitation->name);
  out[0] = PROOF_VERSION;
  out[1] = (uint8_t)proof->shown.kind;
  memcpy(out + 2, proof->swarm.key, 32);
  memcpy(out + 34, proof->signature, 64);
  if (proof->shown.kind == HV_MEMBERSHIP_HOLDER)
    return PROOF_HEAD;
  memcpy(out + PROOF_HEAD, invitation->key.key, 32);
  hv_le_put(out + PROOF_HEAD + 32, (uint64_t)invitation->end_s, 8);
  memcpy(out + PROOF_HEAD + 40, proof->granted, 64);
  memcpy(out + PROOF_INVITED, invitation->name, name);
  return PROOF_INVITED + name;
}

hv_status hv_proof_make(const hv_credentials *credentials, const hv_peer_id *peer, uint8_t out[HV_PROOF_MAX], size_t *size) {
  hv_proof proof = {.swarm = credentials->admission.swarm, .shown = credentials->admission.me};
  memcpy(proof.granted, credentials->signature, sizeof proof.granted);
  hv_status status = hv_identity_sign(credentials->signer, peer_domain, hv_span_of(peer->key, sizeof peer->key), proof.signature);
  if (status == HV_OK)
    *size = hv_proof_print(&proof, out);
  return status;
}

void hv_proof_check(hv_span bytes, const hv_peer_id *peer, const hv_peer_id *swarm, hv_membership *out) {
  hv_proof proof;
  *out = (hv_membership){0};
  if (hv_proof_parse(bytes, &proof) != HV_OK || !hv_peer_equal(&proof.swarm, swarm))
    return;
  int invited = proof.shown.kind == HV_MEMBERSHIP_INVITED;
  const hv_peer_id *signer = invited ? &proof.shown.invitation.key : swarm;
  if (hv_identity_verify(signer, peer_domain, hv_span_of(peer->key, sizeof peer->key), proof.signature) &&
      (!invited || is_granted(swarm, &proof.shown.invitation, proof.granted)))
    *out = proof.shown;
}
