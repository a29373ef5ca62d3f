/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.c - stands in for libnvidia-ml.so.1 beside tests/cudasim's driver: GPUs by their bus addresses, and their links from
 * RONDO_TEST_NVML: words "GPU>END:LINKS:VERSION", each with the last digits of two addresses, or with "switch".
 *   "02>06:2:3 06>02:2:3 07>switch:6:4"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pci {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char address[32];
};

typedef struct link {
    unsigned from, to, version;
    int is_switch;
} link;

/* The n-th link of the GPU on this bus. */
static int find(const void *device, unsigned number, link *found)
{
    const char *at = getenv("RONDO_TEST_NVML");
    unsigned bus = *(const unsigned *)device, seen = 0;
    while (at && *at) {
        char end[16];
        unsigned from, links, version;
        if (sscanf(at, "%x>%15[^:]:%u:%u", &from, end, &links, &version) != 4) abort();
        if (from == bus) {
            if (number < seen + links) {
                *found = (link){from, (unsigned)strtoul(end, NULL, 16), version, strcmp(end, "switch") == 0};
                return 1;
            }
            seen += links;
        }
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return 0;
}

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device)
{
    static unsigned buses[256];
    unsigned domain, bus, slot;
    if (sscanf(address, "%x:%x:%x.0", &domain, &bus, &slot) != 3) return 2;
    buses[bus & 255] = bus & 255;
    *device = &buses[bus & 255];
    return 0;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned number, unsigned *active)
{
    link found;
    *active = (unsigned)find(device, number, &found);
    return *active ? 0 : 3; /* not supported, as for a link that is not there */
}

int nvmlDeviceGetNvLinkVersion(void *device, unsigned number, unsigned *version)
{
    link found;
    if (!find(device, number, &found)) return 3;
    *version = found.version;
    return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned number, struct pci *end)
{
    link found;
    if (!find(device, number, &found)) return 3;
    snprintf(end->address, sizeof end->address, "00000000:%02X:00.0", found.is_switch ? 0xf0 : found.to & 255);
    return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned number, int *type)
{
    link found;
    if (!find(device, number, &found)) return 3;
    *type = found.is_switch ? 2 : 0;
    return 0;
}
