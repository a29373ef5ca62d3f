/* SPDX-License-Identifier: Apache-2.0
 *
 * test_unique_id.c - unique ids: their bytes, damaged and hostile ones, the jobs that follow from them.
 */
#include "asserts.h"

#include "base/hash.h"
#include "base/interface.h"
#include "boot/internal.h"

#include <sys/wait.h>
#include <unistd.h>

static struct rd_id_parts sample(int addresses)
{
    struct rd_id_parts parts;
    memset(&parts, 0, sizeof parts);
    for (int i = 0; i < 16; i++) parts.job[i] = (unsigned char)(0x10 + i);
    for (int i = 0; i < 32; i++) parts.key[i] = (unsigned char)(0x80 + i);
    for (int i = 0; i < 16; i++) parts.token[i] = (unsigned char)(0xf0 - i);
    parts.port = 0xabcd;
    parts.addresses = addresses;
    for (int i = 0; i < addresses; i++) {
        char text[RD_ADDRESS_TEXT];
        snprintf(text, sizeof text, i == 1 ? "[fd00::%d]:1" : "10.0.0.%d:1", i + 1);
        assert_ok(rd_address_parse(&parts.address[i], text));
    }
    return parts;
}

/* The layout is what processes of other builds read: it may not move under one version. */
static void golden_id(void **state)
{
    (void)state;
    static const char golden[] =
        "726e646f0100cdab101112131415161718191a1b1c1d1e1f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e"
        "9ff0efeeedecebeae9e8e7e6e5e4e3e2e10300040a00000106fd000000000000000000000000000002040a000003000000000000000000"
        "0000000000000000000000000000f371f78d";
    struct rd_id_parts parts = sample(3), back;
    rondo_unique_id id;
    char text[257], address[RD_ADDRESS_TEXT];
    rd_id_encode(&id, &parts);
    rd_hex(text, id.bytes, sizeof id.bytes);
    assert_string_equal(text, golden);
    assert_ok(rd_id_decode(&back, &id));
    assert_memory_equal(back.job, parts.job, 16);
    assert_memory_equal(back.key, parts.key, 32);
    assert_memory_equal(back.token, parts.token, 16);
    assert_int_equal(back.port, 0xabcd);
    assert_int_equal(back.addresses, 3);
    static const char *const expected[] = {"10.0.0.1:43981", "[fd00::2]:43981", "10.0.0.3:43981"};
    for (int i = 0; i < 3; i++) {
        rd_address_print(&back.address[i], address);
        assert_string_equal(address, expected[i]);
    }
}

/* Those that do not fit are left out, the best are kept. */
static void as_many_addresses_as_fit(void **state)
{
    (void)state;
    struct rd_id_parts parts = sample(RD_ID_ADDRESSES), back;
    rondo_unique_id id;
    assert_int_equal(parts.address[1].at.ss_family, AF_INET6);
    rd_id_encode(&id, &parts); /* one IPv6 and nine IPv4: 17 + 9 * 5 > 50 */
    assert_ok(rd_id_decode(&back, &id));
    assert_int_equal(back.addresses, 7);
    parts.address[1] = parts.address[0];
    rd_id_encode(&id, &parts);
    assert_ok(rd_id_decode(&back, &id));
    assert_int_equal(back.addresses, 10);
    for (int i = 0; i < RD_ID_ADDRESSES; i++) assert_ok(rd_address_parse(&parts.address[i], "[fd00::1]:1"));
    rd_id_encode(&id, &parts);
    assert_ok(rd_id_decode(&back, &id));
    assert_int_equal(back.addresses, 2);
    parts.addresses = 0;
    rd_id_encode(&id, &parts);
    assert_ok(rd_id_decode(&back, &id));
    assert_int_equal(back.addresses, 0);
}

static void damaged_ids(void **state)
{
    (void)state;
    struct rd_id_parts parts = sample(3), back, before;
    rondo_unique_id good, id;
    memset(&before, 0x3c, sizeof before);
    rd_id_encode(&good, &parts);
    for (int bit = 0; bit < 1024; bit++) {
        id = good;
        id.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        back = before;
        if (rd_id_decode(&back, &id) != RONDO_INVALID_ARGUMENT) fail_msg("taken with bit %d flipped", bit);
        assert_memory_equal(&back, &before, sizeof back);
        assert_contains(rd_last_error(), bit < 32 ? "no unique id" : bit < 48 ? "version" : "damaged");
    }
    for (size_t cut = 0; cut < sizeof id.bytes; cut++) { /* carried through something that ends at a byte 0 */
        id = good;
        memset(id.bytes + cut, 0, sizeof id.bytes - cut);
        if (memcmp(&id, &good, sizeof id) == 0) continue;
        assert_int_equal(rd_id_decode(&back, &id), RONDO_INVALID_ARGUMENT);
    }
    memset(&id, 0, sizeof id);
    assert_int_equal(rd_id_decode(&back, &id), RONDO_INVALID_ARGUMENT);
    assert_contains(rd_last_error(), "all zero");
    assert_contains(rd_last_error(), "rondo_get_unique_id()");
    id = good;
    id.bytes[4] = 2;
    assert_int_equal(rd_id_decode(&back, &id), RONDO_INVALID_ARGUMENT);
    assert_contains(rd_last_error(), "version 2");
    assert_contains(rd_last_error(), "reads version 1");
}

/* Whoever knows the layout can make any id pass the check: nothing in it may lead out of its bytes. */
static void hostile_ids(void **state)
{
    (void)state;
    struct rd_id_parts parts = sample(3), back;
    rondo_unique_id id;
    int taken = 0;
    for (int i = 0; i < 20000; i++) {
        rd_id_encode(&id, &parts);
        rd_random(id.bytes + 72, 52);
        id.bytes[72] = (unsigned char)(i % 256);
        for (int a = 74; a < 124; a++)
            if (i % 2) id.bytes[a] = id.bytes[a] & 1 ? 4 : 6;
        rd_hash(id.bytes + 124, 4, "rondo unique id", id.bytes, 124);
        if (rd_id_decode(&back, &id) != RONDO_SUCCESS) continue;
        taken++;
        assert_in_range(back.addresses, 0, RD_ID_ADDRESSES);
        for (int a = 0; a < back.addresses; a++) {
            char text[RD_ADDRESS_TEXT];
            rd_address_print(&back.address[a], text);
            assert_int_equal(rd_address_port(&back.address[a]), 0xabcd);
        }
    }
    assert_in_range(taken, 1, 19999);
}

static void jobs_from_ids(void **state)
{
    (void)state;
    struct rd_id_parts parts = sample(3);
    rondo_unique_id id;
    rd_settings settings;
    rd_job job, other;
    char name[RD_UNIX_NAME + 8];
    assert_ok(rd_settings_load(&settings, NULL));
    rd_id_encode(&id, &parts);
    memset(&job, 0xff, sizeof job);
    assert_ok(rd_job_from_id(&job, &id, 2, 5, &settings));
    assert_memory_equal(job.id, parts.job, 16);
    assert_memory_equal(job.key, parts.key, 32);
    assert_true(job.has_key);
    assert_false(job.is_root);
    assert_int_equal(job.rank, 2);
    assert_int_equal(job.world, 5);
    assert_int_equal(job.comm_number, 0);
    assert_int_equal(job.roots, 4);
    memcpy(name, "unix:", 6);
    rd_process_unix_name(parts.token, name + 5);
    assert_string_equal(job.root[0], name);
    assert_string_equal(job.root[0], "unix:rondo-f0efeeedecebeae9e8e7e6e5e4e3e2e1");
    assert_string_equal(job.root[1], "10.0.0.1:43981");
    assert_string_equal(job.root[2], "[fd00::2]:43981");
    assert_int_equal(job.root_port, 43981);
    assert_int_equal(job.root_ports, 1);
    /* Again, and as another rank of this process: each counts for itself. */
    assert_ok(rd_job_from_id(&job, &id, 2, 5, &settings));
    assert_int_equal(job.comm_number, 1);
    assert_ok(rd_job_from_id(&job, &id, 3, 5, &settings));
    assert_int_equal(job.comm_number, 0);
    other = job;
    assert_int_equal(rd_job_from_id(&other, &id, 5, 5, &settings), RONDO_INVALID_ARGUMENT);
    assert_contains(rd_last_error(), "rank is 5; valid: 0 to 4");
    assert_int_equal(rd_job_from_id(&other, &id, -1, 5, &settings), RONDO_INVALID_ARGUMENT);
    assert_contains(rd_last_error(), "rank is -1");
    assert_int_equal(rd_job_from_id(&other, &id, 0, 0, &settings), RONDO_INVALID_ARGUMENT);
    assert_contains(rd_last_error(), "world_size is 0; valid: 1 to 65536");
    assert_int_equal(rd_job_from_id(&other, &id, 0, 65537, &settings), RONDO_INVALID_ARGUMENT);
    id.bytes[30] ^= 1;
    assert_int_equal(rd_job_from_id(&other, &id, 2, 5, &settings), RONDO_INVALID_ARGUMENT);
    assert_memory_equal(&other, &job, sizeof job);
}

static void many_jobs_are_counted(void **state)
{
    (void)state;
    unsigned char id[16] = {0};
    uint32_t number;
    for (uint32_t round = 0; round < 3; round++)
        for (int i = 0; i < 300; i++) {
            id[0] = (unsigned char)i;
            id[15] = (unsigned char)(i >> 8);
            number = 99;
            assert_ok(rd_job_count(id, i % 7, &number));
            assert_int_equal(number, round);
        }
    /* A forked child begins anew: its peers' first is its first. */
    pid_t child = fork();
    if (child == 0) _exit(rd_job_count(id, 299 % 7, &number) != RONDO_SUCCESS || number != 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void new_ids(void **state)
{
    (void)state;
    rondo_unique_id first, second;
    struct rd_id_parts a, b;
    rd_settings settings;
    rd_interface list[RD_ID_ADDRESSES];
    int count;
    assert_ok(rd_settings_load(&settings, NULL));
    assert_ok(rd_job_new_id(&first, &settings));
    assert_ok(rd_job_new_id(&second, &settings));
    assert_ok(rd_id_decode(&a, &first));
    assert_ok(rd_id_decode(&b, &second));
    assert_memory_not_equal(a.job, b.job, 16);
    assert_memory_not_equal(a.key, b.key, 32);
    assert_in_range(a.port, 1, 65535);
    assert_ok(rd_interface_list(NULL, list, RD_ID_ADDRESSES, &count));
    assert_true(a.addresses <= count && (count == 0 || a.addresses > 0));
    settings.interface = "=no-such-if";
    memset(&second, 1, sizeof second);
    first = second;
    assert_int_equal(rd_job_new_id(&second, &settings), RONDO_INVALID_ARGUMENT);
    assert_contains(rd_last_error(), "RONDO_INTERFACE==no-such-if");
    assert_memory_equal(&first, &second, sizeof first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_id),     cmocka_unit_test(as_many_addresses_as_fit),
        cmocka_unit_test(damaged_ids),   cmocka_unit_test(hostile_ids),
        cmocka_unit_test(jobs_from_ids), cmocka_unit_test(many_jobs_are_counted),
        cmocka_unit_test(new_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
