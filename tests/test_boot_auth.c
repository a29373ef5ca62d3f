/* SPDX-License-Identifier: Apache-2.0
 *
 * The handshake: who gets in, who does not, and what a listener on the wire learns.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/sock.h"
#include "base/status.h"
#include "boot/dial.h"
#include "boot_ranks.h"

#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_BYTES = 8192 };

static rd_settings settings;

static rd_job new_job(int world)
{
    rondo_unique_id id;
    rd_job job;
    assert_int_equal(rd_job_new_id(&id, &settings), RONDO_SUCCESS);
    assert_int_equal(rd_job_from_id(&job, &id, 0, world, &settings), RONDO_SUCCESS);
    return job;
}

/* One attempt at the table; closes what it gets. */
static enum rd_dialed knock(const rd_job *job, uint32_t version, const char *address, char text[512])
{
    rd_dialing dialing;
    rondo_result result = RONDO_SUCCESS;
    int fd;
    rd_dialing_init(&dialing, job, &settings, rd_deadline(5));
    dialing.request.purpose = RD_PURPOSE_TABLE;
    dialing.version = version;
    text[0] = 0;
    enum rd_dialed dialed = rd_dial(&dialing, address, &fd, &result, text, 512);
    if (dialed == RD_DIAL_FAILED) snprintf(text, 512, "%s: %s", rondo_result_string(result), rd_last_error());
    if (dialed != RD_DIALED) return dialed;
    rd_service_lock();
    rd_close_owned(fd);
    rd_service_unlock();
    sleep_s(0.05); /* the table forgets this rank */
    return dialed;
}

static const char *tcp_root(const rd_job *job)
{
    for (int i = 0; i < job->roots; i++)
        if (strncmp(job->root[i], "unix:", 5)) return job->root[i];
    fail_msg("no TCP address");
    return NULL;
}

static const char *unix_root(const rd_job *job)
{
    for (int i = 0; i < job->roots; i++)
        if (strncmp(job->root[i], "unix:", 5) == 0) return job->root[i];
    fail_msg("no unix address");
    return NULL;
}

static void check_knock(const rd_job *job, uint32_t version, enum rd_dialed expected, const char *words)
{
    char text[512];
    const char *addresses[] = {tcp_root(job), unix_root(job)};
    for (int i = 0; i < 2; i++) {
        enum rd_dialed dialed = knock(job, version, addresses[i], text);
        if (dialed != expected || !strstr(text, words)) fail_msg("%s: %d, %s", addresses[i], dialed, text);
    }
}

static void test_keys_and_versions(void **state)
{
    (void)state;
    rd_job job = new_job(3), other = job;
    check_knock(&job, RD_WIRE_VERSION, RD_DIALED, "");

    other.key[31] ^= 1;
    check_knock(&other, RD_WIRE_VERSION, RD_DIAL_FAILED, "the keys differ");
    memset(other.key, 0, sizeof other.key);
    other.has_key = false;
    check_knock(&other, RD_WIRE_VERSION, RD_DIAL_FAILED, "the keys differ, or only one side has one");
    check_knock(&job, 7, RD_DIAL_FAILED, "it speaks wire version 2 and this process 7");

    other = job;
    other.id[0] ^= 1;
    check_knock(&other, RD_WIRE_VERSION, RD_DIAL_ELSEWHERE, "this job is not (yet) known there");
    check_knock(&job, RD_WIRE_VERSION, RD_DIALED, "");
}

static void test_worlds(void **state)
{
    (void)state;
    rd_job job = new_job(3), other = job;
    rd_table *table;
    assert_int_equal(rd_table_open(&table, &job, &settings, rd_deadline(5), NULL), RONDO_SUCCESS);
    other.rank = 1;
    other.world = 4;
    check_knock(&other, RD_WIRE_VERSION, RD_DIAL_FAILED, "says 4, the others say 3");
    other.rank = 5;
    other.world = 3;
    check_knock(&other, RD_WIRE_VERSION, RD_DIAL_FAILED, "rank 5");
    check_knock(&job, RD_WIRE_VERSION, RD_DIAL_FAILED, "two processes say that they are rank 0: pid ");
    rd_table_close(table);
}

/* ---- On the wire ---- */

typedef struct tap {
    int listener, out_fd;
    rd_address to;
    unsigned char sent[MOST_BYTES], answered[MOST_BYTES]; /* by the client, by the server */
    size_t sent_bytes, answered_bytes;
} tap;

/* Passes one connection on and keeps what crosses it. */
static void *listen_in(void *argument)
{
    tap *t = argument;
    int in, out;
    struct pollfd listener = {.fd = t->listener, .events = POLLIN};
    if (poll(&listener, 1, 5000) != 1 || rd_sock_accept(t->listener, &in) != RONDO_SUCCESS) return NULL;
    if (rd_sock_connect(&out, &t->to, rd_deadline(5)) != RONDO_SUCCESS) return NULL;
    struct pollfd ends[2] = {{.fd = in, .events = POLLIN}, {.fd = out, .events = POLLIN}};
    for (bool open = true; open && poll(ends, 2, 5000) > 0;) {
        for (int i = 0; i < 2 && open; i++) {
            unsigned char *to = i ? t->answered : t->sent;
            size_t *bytes = i ? &t->answered_bytes : &t->sent_bytes, got;
            if (!(ends[i].revents & (POLLIN | POLLHUP))) continue;
            open = rd_sock_read(ends[i].fd, to + *bytes, MOST_BYTES - *bytes, &got, NULL, NULL) == RONDO_SUCCESS &&
                   rd_sock_send(ends[1 - i].fd, to + *bytes, got, rd_deadline(5)) == RONDO_SUCCESS;
            if (open) *bytes += got;
        }
    }
    close(in);
    close(out);
    return NULL;
}

static void tap_handshake(tap *t, const rd_job *job)
{
    pthread_t thread;
    int port;
    char address[64], text[512];
    memset(t, 0, sizeof *t);
    assert_int_equal(rd_address_parse(&t->to, tcp_root(job)), RONDO_SUCCESS);
    assert_int_equal(rd_sock_listen_tcp(&t->listener, 0, &port), RONDO_SUCCESS);
    assert_int_equal(pthread_create(&thread, NULL, listen_in, t), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    enum rd_dialed dialed = knock(job, RD_WIRE_VERSION, address, text);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(t->listener);
    if (dialed != RD_DIALED) fail_msg("through the tap: %d, %s", dialed, text);
    assert_int_equal(t->sent_bytes, RD_HELLO_BYTES + RD_REQUEST_BYTES);
    assert_int_equal(t->answered_bytes, RD_CHALLENGE_BYTES + RD_VERDICT_BYTES);
}

static bool contains(const unsigned char *data, size_t bytes, const unsigned char *what, size_t length)
{
    return memmem(data, bytes, what, length) != NULL;
}

static void test_capture_holds_no_key(void **state)
{
    (void)state;
    tap *t = malloc(sizeof *t);
    rd_job job = new_job(2);
    tap_handshake(t, &job);
    for (int at = 0; at + 8 <= 32; at++) { /* not even eight bytes of it */
        assert_false(contains(t->sent, t->sent_bytes, job.key + at, 8));
        assert_false(contains(t->answered, t->answered_bytes, job.key + at, 8));
    }
    assert_true(contains(t->sent, t->sent_bytes, job.id, 16)); /* the search finds what is there */
    free(t);
}

static int connect_to(const char *address)
{
    rd_address to;
    int fd;
    assert_int_equal(rd_address_parse(&to, address), RONDO_SUCCESS);
    assert_int_equal(rd_sock_connect(&fd, &to, rd_deadline(5)), RONDO_SUCCESS);
    return fd;
}

/* Says the hello and then the request as recorded: the server wants a proof for its new nonce. */
static void test_replay(void **state)
{
    (void)state;
    tap *t = malloc(sizeof *t);
    unsigned char answer[MOST_BYTES];
    rd_job job = new_job(2);
    tap_handshake(t, &job);
    uint64_t strangers = rd_service_strangers();
    int fd = connect_to(tcp_root(&job));
    assert_int_equal(rd_sock_send(fd, t->sent, t->sent_bytes, rd_deadline(5)), RONDO_SUCCESS);
    assert_int_equal(rd_sock_recv(fd, answer, RD_CHALLENGE_BYTES, rd_deadline(5)), RONDO_SUCCESS);
    assert_int_equal(rd_sock_recv(fd, answer, 1, rd_deadline(5)), RONDO_REMOTE_ERROR); /* closed, not a byte more */
    assert_int_equal(rd_service_strangers(), strangers + 1);
    close(fd);
    free(t);
}

/* The server's recorded answers do not satisfy a client: its nonce is new. */
static void *play_server(void *argument)
{
    tap *t = argument;
    int fd;
    unsigned char hello[RD_HELLO_BYTES];
    struct pollfd listener = {.fd = t->listener, .events = POLLIN};
    if (poll(&listener, 1, 5000) != 1 || rd_sock_accept(t->listener, &fd) != RONDO_SUCCESS) return NULL;
    if (rd_sock_recv(fd, hello, sizeof hello, rd_deadline(5)) == RONDO_SUCCESS)
        (void)rd_sock_send(fd, t->answered, t->answered_bytes, rd_deadline(5));
    close(fd);
    return NULL;
}

static void test_replayed_server(void **state)
{
    (void)state;
    tap *t = malloc(sizeof *t);
    pthread_t thread;
    int port;
    char address[64], text[512];
    rd_job job = new_job(2);
    tap_handshake(t, &job);
    assert_int_equal(rd_sock_listen_tcp(&t->listener, 0, &port), RONDO_SUCCESS);
    assert_int_equal(pthread_create(&thread, NULL, play_server, t), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    assert_int_equal(knock(&job, RD_WIRE_VERSION, address, text), RD_DIAL_FAILED);
    assert_non_null(strstr(text, "the keys differ"));
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(t->listener);
    free(t);
}

/* Whoever has no key sends the server's own proof back where a client's belongs. */
static void test_reflection(void **state)
{
    (void)state;
    rd_handshake h = {0};
    rd_request request = {.world = 2, .purpose = RD_PURPOSE_TABLE};
    unsigned char byte;
    rd_job job = new_job(2);
    uint64_t strangers = rd_service_strangers();
    int fd = connect_to(tcp_root(&job));
    rd_auth_write_hello(&h, job.id, RD_WIRE_VERSION);
    assert_int_equal(rd_sock_send(fd, h.hello, sizeof h.hello, rd_deadline(5)), RONDO_SUCCESS);
    assert_int_equal(rd_sock_recv(fd, h.challenge, sizeof h.challenge, rd_deadline(5)), RONDO_SUCCESS);
    rd_auth_write_request(&h, &request);
    memcpy(h.request + RD_REQUEST_BYTES - 32, h.challenge + RD_CHALLENGE_BYTES - 32, 32);
    assert_int_equal(rd_sock_send(fd, h.request, sizeof h.request, rd_deadline(5)), RONDO_SUCCESS);
    assert_int_equal(rd_sock_recv(fd, &byte, 1, rd_deadline(5)), RONDO_REMOTE_ERROR);
    assert_int_equal(rd_service_strangers(), strangers + 1);
    close(fd);
}

/* A request that was changed on its way does not fit its proof. */
static void test_every_byte_counts(void **state)
{
    (void)state;
    rd_handshake client = {0}, server = {0};
    rd_request request = {1, 2, 0, 1, 7, 3, 99, "host"}, heard;
    enum rd_challenge_status status;
    uint32_t version;
    unsigned char id[16] = {1, 2, 3};
    bool proved;
    rd_random(client.key, 32);
    memcpy(server.key, client.key, 32);
    rd_auth_write_hello(&client, id, 1);
    memcpy(server.hello, client.hello, RD_HELLO_BYTES);
    rd_auth_write_challenge(&server, RD_CHALLENGE_OK);
    memcpy(client.challenge, server.challenge, RD_CHALLENGE_BYTES);
    assert_true(rd_auth_read_challenge(&client, &status, &version, &proved) && proved);
    rd_auth_write_request(&client, &request);
    memcpy(server.request, client.request, RD_REQUEST_BYTES);
    assert_true(rd_auth_read_request(&server, &heard));
    assert_int_equal(heard.index, 3);
    assert_int_equal(heard.pid, 99);
    assert_string_equal(heard.host, "host");
    for (int i = 0; i < RD_REQUEST_BYTES; i++) {
        server.request[i] ^= 4;
        assert_false(rd_auth_read_request(&server, &heard));
        server.request[i] ^= 4;
    }
    for (int i = 8; i < RD_CHALLENGE_BYTES; i++) {
        client.challenge[i] ^= 64;
        assert_false(rd_auth_read_challenge(&client, &status, &version, &proved) && proved);
        client.challenge[i] ^= 64;
    }
}

/* ---- Without a key ---- */

static rd_job new_keyless_job(void)
{
    unsigned char token[16], key[32] = {0};
    char name[RD_UNIX_NAME];
    int port;
    rd_job job = {.world = 2, .roots = 2};
    rd_random(job.id, sizeof job.id);
    assert_int_equal(rd_service_serve_job(job.id, key, false, 2, &settings, &port, token), RONDO_SUCCESS);
    rd_process_unix_name(token, name);
    snprintf(job.root[0], sizeof job.root[0], "unix:%.50s", name);
    snprintf(job.root[1], sizeof job.root[1], "127.0.0.1:%d", port);
    return job;
}

static void test_keyless(void **state)
{
    (void)state;
    char text[512];
    rd_job job = new_keyless_job();
    check_knock(&job, RD_WIRE_VERSION, RD_DIALED, ""); /* over TCP with a warning */

    settings.require_key = 1;
    assert_int_equal(knock(&job, RD_WIRE_VERSION, job.root[1], text), RD_DIAL_ELSEWHERE);
    assert_non_null(strstr(text, "RONDO_REQUIRE_KEY"));
    assert_int_equal(knock(&job, RD_WIRE_VERSION, job.root[0], text),
                     RD_DIALED);                                  /* one user on one host is proof enough */
    assert_int_equal(rd_service_start(&settings), RONDO_SUCCESS); /* now the server insists as well */
    settings.require_key = 0;
    assert_int_equal(knock(&job, RD_WIRE_VERSION, job.root[1], text), RD_DIAL_FAILED);
    assert_non_null(strstr(text, "RONDO_REQUIRE_KEY is set there"));
}

/* Another user on this host: neither end takes the other. */
static int as_nobody(const rd_job *job)
{
    char text[512];
    rd_handshake h = {0};
    enum rd_challenge_status status;
    uint32_t version;
    bool proved;
    rd_address to;
    int fd;
    if (setuid(65534)) return 1;
    if (knock(job, RD_WIRE_VERSION, job->root[0], text) != RD_DIAL_ELSEWHERE) return 2;
    if (!strstr(text, "it belongs to user 0, and the job has no key")) return 3;
    if (rd_address_parse(&to, job->root[0]) != RONDO_SUCCESS) return 4;
    if (rd_sock_connect(&fd, &to, rd_deadline(5)) != RONDO_SUCCESS) return 5;
    rd_auth_write_hello(&h, job->id, RD_WIRE_VERSION);
    if (rd_sock_send(fd, h.hello, sizeof h.hello, rd_deadline(5)) != RONDO_SUCCESS) return 6;
    if (rd_sock_recv(fd, h.challenge, sizeof h.challenge, rd_deadline(5)) != RONDO_SUCCESS) return 7;
    if (!rd_auth_read_challenge(&h, &status, &version, &proved)) return 8;
    return status == RD_CHALLENGE_USER ? 0 : 9;
}

static void test_other_user(void **state)
{
    (void)state;
    if (geteuid() != 0) skip();
    rd_job job = new_keyless_job();
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(as_nobody(&job));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    if (rd_settings_load(&settings, NULL) != RONDO_SUCCESS) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_and_versions),
        cmocka_unit_test(test_worlds),
        cmocka_unit_test(test_capture_holds_no_key),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_replayed_server),
        cmocka_unit_test(test_reflection),
        cmocka_unit_test(test_every_byte_counts),
        cmocka_unit_test(test_other_user),
        cmocka_unit_test(test_keyless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
