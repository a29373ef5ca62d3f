/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/auth.h"

#include "base/hash.h"
#include "boot/wire.h"

#include <sodium.h>
#include <string.h>

rondo_result rd_result_from_wire(uint32_t word)
{
    switch (word) {
#define KNOWN_RESULT(name, value, text) case value:
        RONDO_RESULT_MAP(KNOWN_RESULT)
#undef KNOWN_RESULT
        return word == RONDO_SUCCESS ? RONDO_REMOTE_ERROR : (rondo_result)word;
    }
    return RONDO_REMOTE_ERROR;
}

static const unsigned char magic[8] = {'R', 'o', 'n', 'd', 'o', '\r', '\n', 0};

enum {
    PROOF_BYTES = 32,
    CHALLENGE_PROOF_AT = RD_CHALLENGE_BYTES - PROOF_BYTES,
    REQUEST_PROOF_AT = RD_REQUEST_BYTES - PROOF_BYTES
};

const char *rd_challenge_status_name(enum rd_challenge_status status)
{
    static const char *const names[RD_CHALLENGE_STATUSES] = {
        [RD_CHALLENGE_OK] = "ok",
        [RD_CHALLENGE_VERSION] = "another wire version",
        [RD_CHALLENGE_UNKNOWN] = "this job is not (yet) known there",
        [RD_CHALLENGE_USER] = "it belongs to another user, and the job has no key",
        [RD_CHALLENGE_KEYLESS] = "RONDO_REQUIRE_KEY is set there, and the job has no key",
    };
    return (unsigned)status < RD_CHALLENGE_STATUSES ? names[status] : "unknown status";
}

/* What the prover in this role must have seen: the server hello and challenge, the client the request besides. */
static void prove(unsigned char proof[PROOF_BYTES], const rd_handshake *h, const char label[16], bool with_request)
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, h->key, sizeof h->key, PROOF_BYTES);
    crypto_generichash_update(&state, (const unsigned char *)label, 16);
    crypto_generichash_update(&state, h->hello, RD_HELLO_BYTES);
    crypto_generichash_update(&state, h->challenge, with_request ? RD_CHALLENGE_BYTES : CHALLENGE_PROOF_AT);
    if (with_request) crypto_generichash_update(&state, h->request, REQUEST_PROOF_AT);
    crypto_generichash_final(&state, proof, PROOF_BYTES);
}

static void prove_server(unsigned char proof[PROOF_BYTES], const rd_handshake *h)
{
    prove(proof, h, "rondo-server-1\0", false);
}

static void prove_client(unsigned char proof[PROOF_BYTES], const rd_handshake *h)
{
    prove(proof, h, "rondo-client-1\0", true);
}

void rd_auth_write_hello(rd_handshake *h, const unsigned char job_id[16], uint32_t version)
{
    rd_writer w = {h->hello, sizeof h->hello, false};
    rd_write_bytes(&w, magic, sizeof magic);
    rd_write_u32(&w, version);
    rd_write_bytes(&w, job_id, 16);
    rd_random(rd_write_room(&w, 32), 32);
}

bool rd_auth_read_hello(const rd_handshake *h, uint32_t *version, unsigned char job_id[16])
{
    rd_reader r = {h->hello, sizeof h->hello, false};
    if (memcmp(rd_read_room(&r, sizeof magic), magic, sizeof magic)) return false;
    *version = rd_read_u32(&r);
    rd_read_bytes(&r, job_id, 16);
    return true;
}

void rd_auth_write_challenge(rd_handshake *h, enum rd_challenge_status status)
{
    rd_writer w = {h->challenge, sizeof h->challenge, false};
    memset(h->challenge, 0, sizeof h->challenge);
    rd_write_bytes(&w, magic, sizeof magic);
    rd_write_u32(&w, RD_WIRE_VERSION);
    rd_write_u32(&w, (uint32_t)status);
    if (status != RD_CHALLENGE_OK) return;
    rd_random(rd_write_room(&w, 32), 32);
    prove_server(rd_write_room(&w, PROOF_BYTES), h);
}

bool rd_auth_read_challenge(const rd_handshake *h, enum rd_challenge_status *status, uint32_t *version, bool *proved)
{
    rd_reader r = {h->challenge, sizeof h->challenge, false};
    if (memcmp(rd_read_room(&r, sizeof magic), magic, sizeof magic)) return false;
    *version = rd_read_u32(&r);
    uint32_t word = rd_read_u32(&r);
    if (word >= RD_CHALLENGE_STATUSES) return false;
    *status = (enum rd_challenge_status)word;
    unsigned char proof[PROOF_BYTES];
    prove_server(proof, h);
    *proved = sodium_memcmp(proof, h->challenge + CHALLENGE_PROOF_AT, PROOF_BYTES) == 0;
    return true;
}

void rd_auth_write_request(rd_handshake *h, const rd_request *request)
{
    rd_writer w = {h->request, sizeof h->request, false};
    rd_write_u32(&w, request->comm_number);
    rd_write_u32(&w, request->world);
    rd_write_u32(&w, request->from);
    rd_write_u32(&w, request->to);
    rd_write_u32(&w, request->purpose);
    rd_write_u32(&w, request->index);
    rd_write_u32(&w, (uint32_t)request->pid);
    rd_write_text(&w, request->host, 64);
    prove_client(rd_write_room(&w, PROOF_BYTES), h);
}

bool rd_auth_read_request(const rd_handshake *h, rd_request *request)
{
    unsigned char proof[PROOF_BYTES];
    prove_client(proof, h);
    if (sodium_memcmp(proof, h->request + REQUEST_PROOF_AT, PROOF_BYTES)) return false;
    rd_reader r = {h->request, sizeof h->request, false};
    request->comm_number = rd_read_u32(&r);
    request->world = rd_read_u32(&r);
    request->from = rd_read_u32(&r);
    request->to = rd_read_u32(&r);
    request->purpose = rd_read_u32(&r);
    request->index = rd_read_u32(&r);
    request->pid = (int32_t)rd_read_u32(&r);
    rd_read_text(&r, request->host, sizeof request->host, 64);
    return true;
}

size_t rd_auth_write_verdict(unsigned char bytes[RD_VERDICT_BYTES + RD_VERDICT_TEXT_BYTES], const rd_verdict *verdict)
{
    size_t text_bytes = verdict->kind == RD_ACCEPTED ? 0 : strnlen(verdict->text, RD_VERDICT_TEXT_BYTES);
    rd_writer w = {bytes, RD_VERDICT_BYTES + RD_VERDICT_TEXT_BYTES, false};
    rd_write_u32(&w, (uint32_t)verdict->kind);
    rd_write_u32(&w, (uint32_t)verdict->result);
    rd_write_u32(&w, (uint32_t)text_bytes);
    rd_write_bytes(&w, verdict->text, text_bytes);
    return RD_VERDICT_BYTES + text_bytes;
}

bool rd_auth_read_verdict(const unsigned char bytes[RD_VERDICT_BYTES], rd_verdict *verdict, size_t *text_bytes)
{
    rd_reader r = {bytes, RD_VERDICT_BYTES, false};
    uint32_t kind = rd_read_u32(&r), result = rd_read_u32(&r), length = rd_read_u32(&r);
    if (kind >= RD_VERDICTS || length >= RD_VERDICT_TEXT_BYTES) return false;
    verdict->kind = (enum rd_verdict_kind)kind;
    verdict->result = rd_result_from_wire(result);
    *text_bytes = length;
    return true;
}
