/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.c - what the kernel says of a network card of the machine here, in /sys.
 */
#include "topo/machine.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line of a file, "" when there is none. */
static const char *read_line(const char *path, char *line, size_t bytes)
{
    FILE *file = fopen(path, "re");
    if (!file || !fgets(line, (int)bytes, file)) *line = '\0';
    if (file) fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

void rd_nic_ask_kernel(rd_peripheral *nic, int port)
{
    char path[128], line[64];
    snprintf(path, sizeof path, "/sys/class/net/%.15s/operstate", nic->name);
    read_line(path, line, sizeof line);
    if (*line) nic->up = strcmp(line, "up") == 0 || strcmp(line, "unknown") == 0;
    snprintf(path, sizeof path, "/sys/class/net/%.15s/speed", nic->name);
    long mbit = strtol(read_line(path, line, sizeof line), NULL, 10);
    if (mbit > 0) nic->mbit = (uint32_t)mbit;
    if (!*nic->verbs) return;
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/state", nic->verbs, port);
    read_line(path, line, sizeof line);
    if (*line) nic->up = nic->up && strstr(line, "ACTIVE");
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/rate", nic->verbs, port);
    double gbit = strtod(read_line(path, line, sizeof line), NULL);
    if (gbit > 0) nic->mbit = (uint32_t)(gbit * 1000);
}

bool rd_nic_lower(const char *name, char lower[16])
{
    static const char prefix[] = "lower_";
    char path[128];
    bool found = false;
    snprintf(path, sizeof path, "/sys/class/net/%.15s", name);
    DIR *interface = opendir(path);
    for (struct dirent *entry; interface && !found && (entry = readdir(interface));) {
        found = strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0;
        if (found) snprintf(lower, 16, "%.15s", entry->d_name + sizeof prefix - 1);
    }
    if (interface) closedir(interface);
    return found;
}

/* Of a device, or of what it hangs on: a virtual one has no list of its own. */
static bool read_cpus(const char *name, char *list, size_t bytes)
{
    static const char *const files[] = {"device/local_cpulist", "device/../local_cpulist"};
    char path[128];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/sys/class/net/%.15s/%s", name, files[i]);
        if (*read_line(path, list, bytes)) return true;
    }
    return false;
}

rd_link_kind rd_place_interface(const rd_place *place, const char *name)
{
    enum { DEEPEST = 4 }; /* a VLAN of a bond of cards is two above them */
    const rd_machine *machine = rd_machine_here();
    char list[1024], at[16], below[16];
    rd_link_kind kind = RD_LINK_HOST;
    snprintf(at, sizeof at, "%.15s", name);
    for (int depth = 0; !read_cpus(at, list, sizeof list); depth++) {
        if (depth == DEEPEST || !rd_nic_lower(at, below)) return RD_LINK_HOST;
        memcpy(at, below, sizeof at);
    }
    hwloc_bitmap_t cpus = machine ? hwloc_bitmap_alloc() : NULL;
    if (cpus && hwloc_bitmap_list_sscanf(cpus, list) == 0) {
        rd_place device = rd_place_of_set(machine, cpus);
        kind = rd_kind_to_device(place, &device);
    }
    if (cpus) hwloc_bitmap_free(cpus);
    return kind;
}
