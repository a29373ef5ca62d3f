/* SPDX-License-Identifier: Apache-2.0
 *
 * auth.h - the handshake that begins every connection: proof, both ways, that the other end holds the job's key.
 *
 *   client                                          server
 *   hello      version, job id, nonce        ---->
 *                                            <----  challenge  status, nonce, proof over hello and nonce
 *   request    who, to whom, what for,       ---->
 *              proof over all before it
 *                                            <----  verdict    accepted, not yet, or refused with the reason
 *
 * A proof is a hash under the key, labelled with the prover's role: one that is reflected does not fit, and one that is
 * replayed was made for another nonce. The key itself is never sent. This file moves no bytes and keeps no state:
 * door.c is the server, dial.c the client.
 */
#ifndef RD_BOOT_AUTH_H
#define RD_BOOT_AUTH_H

#include "rondo.h"

#include <stdbool.h>

#define RD_WIRE_VERSION 2

enum {
    RD_HELLO_BYTES = 60,
    RD_CHALLENGE_BYTES = 80,
    RD_REQUEST_BYTES = 124,
    RD_VERDICT_BYTES = 12,       /* and then the text */
    RD_VERDICT_TEXT_BYTES = 1024 /* at most */
};

/* What was said so far; the proofs cover it byte by byte. */
typedef struct rd_handshake {
    unsigned char key[32];
    unsigned char hello[RD_HELLO_BYTES];
    unsigned char challenge[RD_CHALLENGE_BYTES];
    unsigned char request[RD_REQUEST_BYTES];
} rd_handshake;

/* Purposes from here on are the control plane's own; smaller ones belong to the caller of rd_member_connect. */
enum { RD_PURPOSES = 0x10000, RD_PURPOSE_TABLE = RD_PURPOSES, RD_PURPOSE_CONTROL, RD_PURPOSE_GREETING };

typedef struct rd_request {
    uint32_t comm_number, world, from, to, purpose, index;
    int32_t pid;
    char host[64];
} rd_request;

/* What the server answers to a hello. */
enum rd_challenge_status {
    RD_CHALLENGE_OK,
    RD_CHALLENGE_VERSION,    /* another wire version; the challenge names the server's */
    RD_CHALLENGE_UNKNOWN,    /* no such job here, or not yet */
    RD_CHALLENGE_USER,       /* without a key both ends must belong to one user */
    RD_CHALLENGE_KEYLESS,    /* RONDO_REQUIRE_KEY is set there */
    RD_CHALLENGE_STATUSES
};
const char *rd_challenge_status_name(enum rd_challenge_status status);

enum rd_verdict_kind { RD_ACCEPTED, RD_NOT_YET, RD_REFUSED, RD_VERDICTS };

typedef struct rd_verdict {
    enum rd_verdict_kind kind;
    rondo_result result;
    char text[RD_VERDICT_TEXT_BYTES];
} rd_verdict;

/* Client: fills h->hello. The version is an argument so that tests can claim another. */
void rd_auth_write_hello(rd_handshake *h, const unsigned char job_id[16], uint32_t version);
/* Server: false when these are not the bytes of any Rondo. */
bool rd_auth_read_hello(const rd_handshake *h, uint32_t *version, unsigned char job_id[16]);

/* Server: fills h->challenge; h->key and h->hello must be there. A refusal bears no proof. */
void rd_auth_write_challenge(rd_handshake *h, enum rd_challenge_status status);
/* Client: false when these are not the bytes of any Rondo. *proved: the server holds h->key. */
bool rd_auth_read_challenge(const rd_handshake *h, enum rd_challenge_status *status, uint32_t *version, bool *proved);

/* Client, then server: false when the proof does not fit. */
void rd_auth_write_request(rd_handshake *h, const rd_request *request);
bool rd_auth_read_request(const rd_handshake *h, rd_request *request);

/* Packs head and text; returns the number of bytes. */
size_t rd_auth_write_verdict(unsigned char bytes[RD_VERDICT_BYTES + RD_VERDICT_TEXT_BYTES], const rd_verdict *verdict);
/* The head; *text_bytes is what follows. false: nonsense. */
bool rd_auth_read_verdict(const unsigned char bytes[RD_VERDICT_BYTES], rd_verdict *verdict, size_t *text_bytes);

/* The result that a peer reports with a failure; whatever is no failure of ours becomes RONDO_REMOTE_ERROR. */
rondo_result rd_result_from_wire(uint32_t word);

#endif
