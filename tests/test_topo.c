/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines described in words and the places on them; discovery of the machine that runs the test.
 */
#include "test.h"

#include "place_kit.h"

#include "base/clock.h"
#include "base/status.h"
#include "topo/topo.h"

#include <errno.h>
#include <hwloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Machines and places ------------------------------------------------------------------------------------- */

static void places_name_the_objects_around_a_pu(void **state)
{
    (void)state;
    static const struct {
        const char *description;
        int pu;
        rd_place place; /* host, package, numa, l3, l2, core, pus, first_pu, last_pu */
    } cases[] = {
        {"pack:2 numa:1 l3:2 core:4 pu:2", 0, {0, 0, 0, 0, -1, 0, 1, 0, 0}},
        {"pack:2 numa:1 l3:2 core:4 pu:2", 15, {0, 0, 0, 1, -1, 7, 1, 15, 15}},
        {"pack:2 numa:1 l3:2 core:4 pu:2", 16, {0, 1, 1, 2, -1, 8, 1, 16, 16}},
        {"pack:2 numa:1 l3:2 core:4 pu:2", 31, {0, 1, 1, 3, -1, 15, 1, 31, 31}},
        {"pack:2 numa:2 l3:2 l2:2 core:2 pu:1", 31, {0, 1, 3, 7, 15, 31, 1, 31, 31}},
        {"numa:2 l2:2 core:1 pu:1", 3, {0, -1, 1, -1, 3, 3, 1, 3, 3}},          /* no package, no L3 */
        {"pack:2 [numa] [numa] core:2 pu:1", 3, {0, 1, 2, -1, -1, 3, 1, 3, 3}}, /* two memories: the first speaks */
        {"[numa] pack:2 core:2 pu:1", 3, {0, 1, 0, -1, -1, 3, 1, 3, 3}},        /* one memory over both packages */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rd_machine *machine = machine_of(cases[i].description);
        rd_place place;
        assert_int_equal(rd_place_of_pu(machine, cases[i].pu, &place), RONDO_SUCCESS);
        if (memcmp(&place, &cases[i].place, sizeof place))
            fail_msg("%s, PU %d: package %d numa %d l3 %d l2 %d core %d pus %d", cases[i].description, cases[i].pu,
                     place.package, place.numa, place.l3, place.l2, place.core, place.pus);
        rd_machine_free(machine);
    }
}

static void descriptions_read_well(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"pack:2 numa:1 l3:2 core:4 pu:2", "2 packages, 2 NUMA nodes, 4 L3 caches, 16 cores, 32 PUs"},
        {"pack:1 l3:1 core:1 pu:1", "1 package, 1 NUMA node, 1 L3 cache, 1 core, 1 PU"},
        {"numa:2 pu:3", "2 NUMA nodes, 6 PUs"},
    };
    char text[128];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rd_machine *machine = machine_of(cases[i][0]);
        rd_machine_describe(machine, text, sizeof text);
        assert_string_equal(text, cases[i][1]);
        char brief[12] = "###########";
        rd_machine_describe(machine, brief, 8); /* cut off, and not a byte further */
        assert_int_equal(strlen(brief), 7);
        assert_memory_equal(brief, text, 7);
        assert_string_equal(brief + 8, "###");
        rd_machine_describe(machine, NULL, 0);
        rd_machine_free(machine);
    }
}

static void bad_descriptions_are_refused_in_words(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "pack", "pack:0 pu:2", "pack:2 wheel:3 pu:2", "pu:2 pack:2", "pack:two pu:1"};
    rd_machine *machine = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (rd_machine_synthetic(&machine, bad[i]) != RONDO_INVALID_ARGUMENT) fail_msg("\"%s\" was taken", bad[i]);
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\"", bad[i]);
        assert_non_null(strstr(rd_last_error(), quoted));
        assert_non_null(strstr(rd_last_error(), "for example"));
        assert_null(machine);
    }
    assert_int_equal(rd_machine_synthetic(&machine, NULL), RONDO_INVALID_ARGUMENT);
    assert_null(machine);
    rd_machine_free(NULL);
}

static void a_pu_that_is_not_there_is_refused(void **state)
{
    (void)state;
    rd_machine *machine = machine_of("pack:2 core:2 pu:2");
    rd_place place, before;
    memset(&place, 0x5a, sizeof place);
    before = place;
    for (int pu = -1; pu <= 8; pu += 9) {
        assert_int_equal(rd_place_of_pu(machine, pu, &place), RONDO_INVALID_ARGUMENT);
        assert_memory_equal(&place, &before, sizeof place);
        assert_non_null(strstr(rd_last_error(), "0 to 7"));
    }
    rd_machine_free(machine);
}

/* ---- The machine here ---------------------------------------------------------------------------------------- */

/* First of its group: in children of a process that has not looked yet, as when 64 ranks of one host start. */
static void many_processes_discover_at_once(void **state)
{
    (void)state;
    enum { PROCESSES = 64 };
    pid_t children[PROCESSES];
    int64_t start = rd_now();
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            rd_place place;
            alarm(20); /* a hang is a failure */
            _exit(rd_place_here(&place) == RONDO_SUCCESS && place.pus > 0 ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    int64_t took = rd_now() - start;
    print_message("%d processes discovered their machine in %.0f ms\n", PROCESSES, (double)took / 1e6);
    assert_true(took < (int64_t)10 * 1000000000);
}

static void *look(void *unused)
{
    (void)unused;
    return (void *)(uintptr_t)rd_machine_here();
}

static void threads_see_one_machine(void **state)
{
    (void)state;
    pthread_t threads[8];
    void *seen[8];
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_create(&threads[i], NULL, look, NULL), 0);
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_join(threads[i], &seen[i]), 0);
    assert_non_null(seen[0]);
    for (int i = 1; i < 8; i++) assert_ptr_equal(seen[i], seen[0]);
    assert_ptr_equal(rd_machine_here(), seen[0]);
    char text[160];
    rd_machine_describe(rd_machine_here(), text, sizeof text);
    print_message("here: %s\n", text);
    assert_non_null(strstr(text, "PU"));
}

/* Logical index of the PU that the kernel numbers `cpu`, by hwloc itself. */
static int logical(hwloc_topology_t topology, int cpu)
{
    hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, (unsigned)cpu);
    assert_non_null(pu);
    return (int)pu->logical_index;
}

struct bound_thread {
    cpu_set_t set;
    rd_place place;
    int allowed;
};

static void *bind_and_look(void *argument)
{
    struct bound_thread *mine = argument;
    if (sched_setaffinity(0, sizeof mine->set, &mine->set) || rd_place_here(&mine->place)) return NULL;
    mine->allowed = rd_allowed_pus();
    return mine;
}

static void place_follows_the_binding(void **state)
{
    (void)state;
    cpu_set_t before, one, two;
    hwloc_topology_t topology;
    rd_place place, expected, last;
    int bound = 0, last_cpu = -1;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(rd_allowed_pus(), CPU_COUNT(&before));
    hwloc_topology_init(&topology);
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    assert_int_equal(hwloc_topology_load(topology), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && bound < 4; cpu++) {
        if (!CPU_ISSET(cpu, &before)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        assert_int_equal(rd_place_here(&place), RONDO_SUCCESS);
        assert_int_equal(rd_place_of_pu(rd_machine_here(), logical(topology, cpu), &expected), RONDO_SUCCESS);
        assert_memory_equal(&place, &expected, sizeof place);
        assert_int_equal(place.pus, 1);
        assert_int_equal(rd_allowed_pus(), 1);
        if (bound++) { /* bound to this one and the last: what differs is unknown, what is shared stays */
            two = one;
            CPU_SET(last_cpu, &two);
            assert_int_equal(sched_setaffinity(0, sizeof two, &two), 0);
            assert_int_equal(rd_place_here(&place), RONDO_SUCCESS);
            assert_int_equal(place.pus, 2);
            assert_int_equal(place.core, last.core == expected.core ? last.core : -1);
            assert_int_equal(place.l3, last.l3 == expected.l3 ? last.l3 : -1);
            assert_int_equal(place.package, last.package == expected.package ? last.package : -1);
            assert_int_equal(place.first_pu, last.first_pu < expected.first_pu ? last.first_pu : expected.first_pu);
            assert_int_equal(place.last_pu, last.first_pu < expected.first_pu ? expected.first_pu : last.first_pu);
            assert_int_equal(rd_allowed_pus(), 2);
            /* A thread's place is by its own binding; the process as a whole keeps what it has. */
            struct bound_thread other = {.set = one};
            pthread_t thread;
            void *done;
            assert_int_equal(pthread_create(&thread, NULL, bind_and_look, &other), 0);
            assert_int_equal(pthread_join(thread, &done), 0);
            assert_ptr_equal(done, &other);
            assert_memory_equal(&other.place, &expected, sizeof expected);
            assert_int_equal(other.allowed, 2);
        }
        last = expected;
        last_cpu = cpu;
    }
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(rd_allowed_pus(), CPU_COUNT(&before));
    hwloc_topology_destroy(topology);
}

/* ---- Interfaces ---------------------------------------------------------------------------------------------- */

static void write_line(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    if (!file) _exit(2);
    fputs(text, file);
    fclose(file);
}

/* In a child: two packages of two cores, and interfaces in a /sys/class/net of its own. */
static int look_at_interfaces(void)
{
    static const struct {
        const char *name;
        rd_link_kind from_0, from_3;
    } cases[] = {
        {"eth0", RD_LINK_PCI_BRIDGE, RD_LINK_PCI_HOST},  {"eth1", RD_LINK_PCI_HOST, RD_LINK_PCI_BRIDGE},
        {"vlan7", RD_LINK_PCI_HOST, RD_LINK_PCI_BRIDGE}, {"both", RD_LINK_PCI_HOST, RD_LINK_PCI_HOST},
        {"veth0", RD_LINK_HOST, RD_LINK_HOST},           {"nothing", RD_LINK_HOST, RD_LINK_HOST},
        {"loop1", RD_LINK_HOST, RD_LINK_HOST},
    };
    rd_place first, last;
    if (setenv("HWLOC_SYNTHETIC", "pack:2 core:2 pu:1", 1) || unshare(CLONE_NEWNS) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("none", "/sys/class/net", "tmpfs", 0, NULL) ||
        chdir("/sys/class/net"))
        return 77;
    static const char *const directories[] = {"eth0", "eth0/device", "eth1",  "eth1/virtio", "vlan7", "bond0",
                                              "both", "both/device", "veth0", "loop1",       "loop2"};
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
        if (mkdir(directories[i], 0700)) return 2;
    write_line("eth0/device/local_cpulist", "0-1\n");
    write_line("eth1/local_cpulist", "2,3\n"); /* of what the virtual device hangs on */
    write_line("both/device/local_cpulist", "0-3\n");
    if (symlink("virtio", "eth1/device") || symlink("../bond0", "vlan7/lower_bond0") ||
        symlink("../eth1", "bond0/lower_eth1") || symlink("../loop2", "loop1/lower_loop2") ||
        symlink("../loop1", "loop2/lower_loop1"))
        return 2;
    if (rd_place_of_pu(rd_machine_here(), 0, &first) || rd_place_of_pu(rd_machine_here(), 3, &last)) return 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (rd_place_interface(&first, cases[i].name) != cases[i].from_0 ||
            rd_place_interface(&last, cases[i].name) != cases[i].from_3)
            return 10 + (int)i;
    return 0;
}

static void interfaces_are_near_or_far(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(look_at_interfaces());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("no mount namespace here: %s\n", geteuid() ? "not root" : strerror(errno));
        skip();
    }
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_processes_discover_at_once),
        cmocka_unit_test(interfaces_are_near_or_far), /* before this process looks at its machine */
        cmocka_unit_test(threads_see_one_machine),
        cmocka_unit_test(place_follows_the_binding),
        cmocka_unit_test(places_name_the_objects_around_a_pu),
        cmocka_unit_test(descriptions_read_well),
        cmocka_unit_test(bad_descriptions_are_refused_in_words),
        cmocka_unit_test(a_pu_that_is_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
