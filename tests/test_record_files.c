/* SPDX-License-Identifier: Apache-2.0
 *
 * test_record_files.c - flight records that are damaged, of another version, or made for the purpose, as `rondo doctor
 * --merge` reads them.
 */
#include "test_record.h"

#include <fcntl.h>

static rondo_record_header header_of(int rank, int size, uint32_t calls)
{
    rondo_record_header header = {.version = RONDO_RECORD_VERSION,
                                  .bytes = sizeof header,
                                  .call_bytes = sizeof(rondo_record_call),
                                  .calls = calls,
                                  .job = {0xab, 0xcd, 1, 2},
                                  .rank = rank,
                                  .size = size,
                                  .pid = 1,
                                  .written_ns = 9000000000,
                                  .host = "here"};
    memcpy(header.magic, RONDO_RECORD_MAGIC, 8);
    return header;
}

static void write_file(const char *name, const void *data, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), bytes);
    close(fd);
}

typedef struct block {
    rondo_record_header header;
    rondo_record_call calls[3];
} block;

static block block_of(int rank, int size, uint32_t calls)
{
    block made = {.header = header_of(rank, size, calls)};
    for (uint32_t i = 0; i < 3; i++)
        made.calls[i] = (rondo_record_call){.number = i + 1,
                                            .begun_ns = 1000000000,
                                            .ended_ns = 2000000000,
                                            .count = i + 1,
                                            .dtype = RONDO_FLOAT32,
                                            .together = 1};
    return made;
}

/* (d) What is no record, or a damaged one, is said and left out; the rest counts. */
static void damaged(void **state)
{
    char output[OUTPUT];
    (void)state;
    merge("", 1, output);
    expect(output, "there is no record (*.rec) in it");
    block good = block_of(1, 2, 3), bad = good;
    struct {
        const char *name, *says;
        size_t offset;
        uint32_t value;
    } cases[] = {
        {"magic", "is no record of Rondo, or is damaged, at byte 0", 0, 7},
        {"version", "has records of version 2, and this tool reads version 1", offsetof(rondo_record_header, version),
         2},
        {"order", "is of a machine with another byte order", offsetof(rondo_record_header, version), 1u << 24},
        {"bytes", "is damaged at byte 0: 3 calls of 64 bytes after 9", offsetof(rondo_record_header, bytes), 9},
        {"call_bytes", "3 calls of 0 bytes", offsetof(rondo_record_header, call_bytes), 0},
        {"calls", "4294967295 calls", offsetof(rondo_record_header, calls), UINT32_MAX},
        {"more", "is cut off: 64 bytes are missing at its end", offsetof(rondo_record_header, calls), 4},
        {"rank", "rank 2 of 2", offsetof(rondo_record_header, rank), 2},
        {"below", "rank -1 of 2", offsetof(rondo_record_header, rank), UINT32_MAX},
        {"size", "rank 1 of 0", offsetof(rondo_record_header, size), 0},
        {"huge", "rank 1 of 2147483647", offsetof(rondo_record_header, size), INT32_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clear();
        bad = good;
        memcpy((char *)&bad + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        write_file("bad.rec", &bad, sizeof bad);
        merge("", 1, output);
        expect(output, cases[i].says);
        expect(output, "none of 1 records can be read");
    }
    write_file("good.rec", &good, sizeof good);
    write_file("empty.rec", "", 0);
    write_file("short.rec", &good, 100);
    write_file("notes.txt", "no record", 9);
    merge("--json", 1, output);
    expect(output, "skipped: ");
    expect(output, "empty.rec has no record in it");
    expect(output, "short.rec is cut off");
    expect(output, "\"verdict\": \"rank 0 left no record: ");
    if (strstr(output, "notes.txt")) fail_msg("a file that is no *.rec:\n%s", output);
}

/* Whatever the bytes of calls are, the tool ends with 0 or 1. */
static void any_bytes(void **state)
{
    char output[OUTPUT];
    uint64_t random = 12345;
    (void)state;
    for (int round = 0; round < 20; round++) {
        for (int rank = 0; rank < 3; rank++) {
            block made = block_of(rank, 3, 3);
            unsigned char *bytes = (unsigned char *)made.calls;
            char name[16];
            for (size_t i = 0; i < sizeof made.calls; i++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                if (round % 2)
                    bytes[i] = (unsigned char)(random >> 56) & (round % 4 == 1 ? 3 : 255);
                else if (random >> 59 == 0)
                    bytes[i] ^= (unsigned char)(random >> 40);
            }
            snprintf(name, sizeof name, "%d.rec", rank);
            write_file(name, &made, sizeof made);
        }
        merge("", 0, output);
        merge("--json", 0, output);
    }
}

/* Files of one's own: two communicators, and an older record of a rank beside a newer one. */
static void several(void **state)
{
    char output[OUTPUT];
    block a = block_of(0, 2, 3), b = block_of(1, 2, 3), c = block_of(0, 1, 3);
    (void)state;
    a.header.written_ns = 8000000000;
    a.header.calls = 1; /* as of then */
    write_file("0.rec", &a, sizeof a.header + sizeof *a.calls);
    a = block_of(0, 2, 3);
    write_file("a.rec", &a, sizeof a);
    write_file("b.rec", &b, sizeof b);
    merge("", 0, output);
    expect_first(output, "nothing is wrong: all ranks got to call 3 alike");
    c.header.comm_number = 5;
    c.header.result = RONDO_ABORTED;
    strcpy(c.header.error, "it \033[31mwas\n aborted");
    write_file("c.rec", &c, sizeof c);
    merge("", 0, output);
    expect_first(
        output,
        "communicator 5 of job abcd0102: all ranks got to call 3 alike; rank 0 ended with: it ?[31mwas  aborted");
    b.calls[2].count = 4;
    write_file("b.rec", &b, sizeof b);
    merge("", 0, output);
    expect_first(output, "differ from call 3 on: rank 0 called rondo_all_reduce of 3 float32, sum, and rank 1 "
                         "rondo_all_reduce of 4 float32, sum");
    b.calls[1].op = RONDO_MIN;
    write_file("b.rec", &b, sizeof b);
    merge("", 0, output);
    expect_first(
        output,
        "communicator 0 of job abcd0102: the ranks' calls differ from call 2 on: rank 0 called rondo_all_reduce of "
        "2 float32, sum, and rank 1 rondo_all_reduce of 2 float32, min");
}

/* What ranks ended with alike is said once; what ended at once took no time that is known. */
static void alike(void **state)
{
    char output[OUTPUT];
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        block made = block_of(rank, 5, 3);
        char name[16];
        made.calls[2].ended_ns = made.calls[2].begun_ns + 1;
        made.header.result = RONDO_REMOTE_ERROR;
        snprintf(made.header.error, sizeof made.header.error, "%s%s: rank 4 (pid 8 on h) %s; rank 2 is well",
                 rank == 1 ? "rank 3 (pid 7 on h): " : "", rank == 2 ? "rank 4 (pid 8 on h) called" : "lost",
                 rank == 2 ? "has left" : "died");
        snprintf(name, sizeof name, "%d.rec", rank);
        write_file(name, &made, sizeof made);
    }
    merge("", 0, output);
    expect_first(output, "rank 4 left no record; the others say: rank 4 (pid 8 on h) died; the others got to call 3\n");
    expect(output, "\n  ranks 0-1, 3 ended: another rank failed or left: lost: rank 4 (pid 8 on h) died; rank 2 is ");
    expect(output, "\n    ended: another rank failed or left: rank 4 (pid 8 on h) called: rank 4 (pid 8 on h) has ");
    expect(output, "    call 3, rondo_all_reduce of 3 float32, sum: begun 8 s before, took short, done\n");
    merge("--json", 0, output);
    expect_json(output, "\"took_s\":null,");
}

/* The n-th send belongs to the n-th receive; those of a group may have one number. */
static void messages(void **state)
{
    char output[OUTPUT];
    block a = block_of(0, 2, 3), b = block_of(1, 2, 3);
    (void)state;
    for (int i = 0; i < 3; i++) {
        a.calls[i].kind = RONDO_RECORD_SEND;
        a.calls[i].root = 1;
        b.calls[i].kind = RONDO_RECORD_RECV;
        b.calls[i].root = 0;
    }
    write_file("a.rec", &a, sizeof a);
    write_file("b.rec", &b, sizeof b);
    merge("", 0, output);
    expect_first(output, "nothing is wrong: all ranks got to call 0 alike");
    b.calls[1].count = 9;
    write_file("b.rec", &b, sizeof b);
    merge("", 0, output);
    expect_first(output,
                 "message 2 from rank 0 to rank 1: rank 0 called rondo_send of 2 float32 to rank 1 (done), and rank 1 "
                 "has called rondo_recv of 9 float32 from rank 0\n");
    a.calls[0].number = a.calls[1].number = 3;
    b.calls[1].count = 2;
    write_file("a.rec", &a, sizeof a);
    write_file("b.rec", &b, sizeof b);
    merge("", 0, output);
    expect_first(output, "nothing is wrong");
    b.calls[0].number = b.calls[1].number = 3;
    write_file("b.rec", &b, sizeof b);
    merge("", 0, output);
    expect_first(output, "nothing is wrong");
    a.calls[2].number = 4;
    write_file("a.rec", &a, sizeof a);
    merge("", 0, output);
    expect_first(output,
                 "message 4 from rank 0 to rank 1: rank 0 called rondo_send of 3 float32 to rank 1 (done), and rank 1 "
                 "has not called rondo_recv for it\n");
    b.calls[0].root = 77; /* of no rank there is */
    write_file("b.rec", &b, sizeof b);
    merge("--json", 0, output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(damaged, each),  cmocka_unit_test_setup(any_bytes, each),
        cmocka_unit_test_setup(several, each),  cmocka_unit_test_setup(alike, each),
        cmocka_unit_test_setup(messages, each),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
