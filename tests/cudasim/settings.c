/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - what CUDASIM asks for, words such as "devices=4 p2p=pairs memory=64M".
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_settings sim_settings = {
    .devices = 2,
    .multiprocessors = 8,
    .capability = 90,
    .driver_version = 13000,
    .memory_bytes = (size_t)4 << 30,
    .p2p = SIM_P2P_ALL,
};

static __attribute__((noreturn)) void refuse(const char *word)
{
    sim_say("CUDASIM: \"%s\" is not understood; there are: devices=1..%d multiprocessors=N capability=90 driver=13000 "
            "memory=BYTES[KMG] "
            "p2p=all|none|pairs|switch|pcie seed=N pci=ADDRESS,... lacks=FUNCTION fail=CALL:NTH[:RESULT[:lost]],... "
            "plant=BUG trace no_memory_operations no_ipc no_fds no_rdma no_flush ordered_rdma no_dmabuf",
            word, SIM_DEVICES);
    abort();
}

static size_t number(const char *word, const char *text, size_t least, size_t most)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text) refuse(word);
    if (*end == 'K')
        value <<= 10, end++;
    else if (*end == 'M')
        value <<= 20, end++;
    else if (*end == 'G')
        value <<= 30, end++;
    if (*end != '\0' || value < least || value > most) refuse(word);
    return (size_t)value;
}

static void read_pci(const char *word, char *list)
{
    char *save = NULL;
    int i = 0;
    for (char *one = strtok_r(list, ",", &save); one != NULL; one = strtok_r(NULL, ",", &save), i++) {
        unsigned domain, bus, slot;
        if (i == SIM_DEVICES || sscanf(one, "%x:%x:%x.0", &domain, &bus, &slot) != 3) refuse(word);
        snprintf(sim_settings.pci[i], sizeof sim_settings.pci[i], "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff,
                 slot & 0x1f);
    }
}

static enum sim_p2p p2p(const char *word, const char *name)
{
    static const char *const names[] = {"all", "none", "pairs", "switch", "pcie"};
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0) return (enum sim_p2p)i;
    refuse(word);
}

static bool read_switch(const char *word)
{
    const struct {
        const char *name;
        bool *value;
    } switches[] = {
        {"trace", &sim_settings.trace},
        {"no_memory_operations", &sim_settings.no_memory_operations},
        {"no_ipc", &sim_settings.no_ipc},
        {"no_fds", &sim_settings.no_fds},
        {"no_rdma", &sim_settings.no_rdma},
        {"no_flush", &sim_settings.no_flush},
        {"ordered_rdma", &sim_settings.ordered_rdma},
        {"no_dmabuf", &sim_settings.no_dmabuf},
    };
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (strcmp(word, switches[i].name) == 0) return *switches[i].value = true;
    return false;
}

static void read_word(char *word)
{
    char name[256];
    char *value = strchr(word, '=');
    snprintf(name, sizeof name, "%s", word);
    if (read_switch(word)) return;
    if (value == NULL) refuse(name);
    *value++ = '\0';
    if (strcmp(word, "devices") == 0)
        sim_settings.devices = (int)number(name, value, 0, SIM_DEVICES);
    else if (strcmp(word, "multiprocessors") == 0)
        sim_settings.multiprocessors = (int)number(name, value, 1, 1024);
    else if (strcmp(word, "capability") == 0)
        sim_settings.capability = (int)number(name, value, 30, 200);
    else if (strcmp(word, "driver") == 0)
        sim_settings.driver_version = (int)number(name, value, 0, 99999);
    else if (strcmp(word, "memory") == 0)
        sim_settings.memory_bytes = number(name, value, 1 << 20, (size_t)64 << 30);
    else if (strcmp(word, "seed") == 0)
        sim_settings.seed = (unsigned)number(name, value, 0, UINT32_MAX);
    else if (strcmp(word, "p2p") == 0)
        sim_settings.p2p = p2p(name, value);
    else if (strcmp(word, "pci") == 0)
        read_pci(name, value);
    else if (strcmp(word, "lacks") == 0)
        snprintf(sim_settings.lacks, sizeof sim_settings.lacks, "%s", value);
    else if (strcmp(word, "plant") == 0)
        snprintf(sim_settings.plant, sizeof sim_settings.plant, "%s", value);
    else if (strcmp(word, "fail") != 0 || !sim_fail_read(value))
        refuse(name);
}

void sim_settings_read(void)
{
    const char *text = getenv("CUDASIM");
    char copy[1024], *save = NULL;
    for (int i = 0; i < SIM_DEVICES; i++)
        snprintf(sim_settings.pci[i], sizeof sim_settings.pci[i], "0000:%02X:00.0", (unsigned)(0x10 + i));
    if (text == NULL) return;
    if (strlen(text) >= sizeof copy) refuse(text);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) read_word(word);
}
