/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include "base/gpu_rdma.h"
#include "base/rdma.h"
#include "base/status.h"
#include "topo/nics.h"
#include "topo/rails.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef RD_VERBS
static const bool built = true;
#else
static const bool built = false;
#endif
#define LEAST_MEMLOCK (2UL << 20) /* one end of a link locks some 1.3 MiB of its own */

/* The port that links of a rank here would take to one on a host like this; false: there is none. gpu: rd_bus_id(), or
 * RD_NO_GPU. */
static bool nearest(const rd_settings *settings, uint32_t gpu, rd_rails *rails, int32_t *port)
{
    rd_place place;
    int32_t there;
    *port = -1;
    if (rd_place_here(&place) != RONDO_SUCCESS || rd_rails_here(settings, &place, gpu, rails) != RONDO_SUCCESS) {
        *rails = (rd_rails){0};
        return false;
    }
    rd_rails_agree(&rails->told, 1);
    rd_nics_pair(&rails->told, &rails->told, port, &there);
    return *port >= 0;
}

/* Each port with its addresses: the one that links would use is marked. */
static void show_port(rd_findings *f, const char *section, const rd_rdma_port *port, const rd_rails *rails)
{
    char name[40], gids[400] = "no GID", address[48], whole[RD_RDMA_PORT_NAME];
    const char *between = NULL;
    size_t used = 0;
    for (int i = 0; i < port->gid_count && used < sizeof gids; i++) {
        const rd_rdma_gid *gid = &port->gids[i];
        rd_rdma_gid_print(gid->bytes, address);
        used += (size_t)snprintf(gids + used, sizeof gids - used, "%s%sGID %d %s (%s%s%s)", used ? ", " : "",
                                 i == port->gid ? "*" : "", gid->index, address, rd_gid_kind_names[gid->kind],
                                 *gid->netdev ? ", " : "", gid->netdev);
    }
    snprintf(name, sizeof name, "rdma %.28s:%d", port->device, port->port);
    rd_rdma_port_name(port, whole);
    for (int i = 0; i < rails->told.nics; i++)
        if (!strcmp(rails->port[i], whole)) between = rd_rails_between(rails, i);
    rd_find(f, section, name, *port->unusable ? RD_LEVEL_INFO : RD_LEVEL_OK, NULL, "%s, %s%s%s%s%s; %s%s%s",
            port->ethernet ? "RoCE" : "InfiniBand", port->state, *port->rate ? ", " : "", port->rate,
            between ? ", between it and this process: " : "", between ? between : "", gids,
            *port->unusable ? "; not used: " : "", port->unusable);
}

/* The character device through which libibverbs opens an RDMA device; false: there is none. */
static bool verbs_file(const char *device, char *path, size_t bytes)
{
    bool found = false;
    DIR *all = opendir("/sys/class/infiniband_verbs");
    const struct dirent *entry;
    while (all && !found && (entry = readdir(all))) {
        char file[320], name[80] = "";
        snprintf(file, sizeof file, "/sys/class/infiniband_verbs/%s/ibdev", entry->d_name);
        FILE *says = fopen(file, "re");
        if (!says) continue;
        if (fgets(name, sizeof name, says)) name[strcspn(name, "\n")] = '\0';
        fclose(says);
        found = !strcmp(name, device);
        if (found) snprintf(path, bytes, "/dev/infiniband/%.200s", entry->d_name);
    }
    if (all) closedir(all);
    return found;
}

/* What keeps a device that is chosen from being used. */
static bool can_open(rd_findings *f, const char *section, const rd_rdma_port *port)
{
    char path[256];
    struct rlimit locked = {0};
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    bool fine = library != NULL;
    if (!library)
        rd_find(f, section, "rdma", RD_LEVEL_WARNING, "apt-get install ibverbs-providers", "%s", dlerror());
    else
        dlclose(library);
    if (!verbs_file(port->device, path, sizeof path)) {
        rd_find(f, section, "rdma", RD_LEVEL_WARNING, "modprobe ib_uverbs", "%s has no file in /dev/infiniband",
                port->device);
        return false;
    }
    if (access(path, R_OK | W_OK)) {
        rd_find(f, section, "rdma", RD_LEVEL_WARNING, "chmod 666 /dev/infiniband/uverbs* (container: --device /dev/infiniband)",
                "%s may not be opened by user %u", path, getuid());
        fine = false;
    }
    getrlimit(RLIMIT_MEMLOCK, &locked);
    if (locked.rlim_cur < LEAST_MEMLOCK && geteuid() != 0) {
        rd_find(f, section, "rdma", RD_LEVEL_WARNING, "ulimit -l unlimited (container: --ulimit memlock=-1)",
                "%lu KiB may be locked, a link needs %lu", (unsigned long)locked.rlim_cur / 1024, LEAST_MEMLOCK / 1024);
        fine = false;
    }
    return fine;
}

/* "by mlx5_0:1 (PCIe switch); " */
static void show_nearest(const rd_settings *settings, int gpu, char *text, size_t bytes)
{
    struct rd_gpu_info info;
    rd_rails rails;
    int32_t port;
    uint32_t bus;
    *text = '\0';
    if (rd_gpu_describe(gpu, &info) != RONDO_SUCCESS || !rd_bus_id_parse(&bus, info.pci)) return;
    if (nearest(settings, bus, &rails, &port))
        snprintf(text, bytes, "by %s (%s); ", rails.port[port], rd_rails_between(&rails, port));
}

/* Whether the RDMA device takes what the GPU's driver offers shows when a link is made. */
static void show_gpus(rd_findings *f, const char *section, const rd_settings *settings)
{
    char name[40], why[200], near[160];
    bool module = !access("/sys/module/nvidia_peermem", F_OK);
    for (int gpu = 0; gpu < rd_gpu_count(); gpu++) {
        snprintf(name, sizeof name, "rdma GPU %d", gpu);
        show_nearest(settings, gpu, near, sizeof near);
        if (!settings->rdma_gpu)
            rd_find(f, section, name, RD_LEVEL_INFO, NULL, "%sthrough host memory, since RONDO_RDMA_GPU is 0", near);
        else if (rd_gpu_rdma_inbound(gpu, why, sizeof why) == RD_GPU_INBOUND_NONE)
            rd_find(f, section, name, RD_LEVEL_INFO, NULL, "%sthrough host memory: %s", near, why);
        else
            rd_find(f, section, name, RD_LEVEL_INFO, NULL, "%sits memory is tried %s%s; %s", near,
                    rd_gpu_rdma_exports(gpu) ? "as a dma-buf, then by its address" : "by its address (no dma-buf)",
                    module ? "" : " (nvidia-peermem is not loaded)", why);
    }
}

void rd_doctor_rdma(rd_findings *f, const rd_settings *settings)
{
    static const char section[] = "links";
    char why[400];
    int count = 0;
    int32_t port;
    rd_rails rails;
    rd_rdma_port *list = calloc(RD_RDMA_PORTS, sizeof *list);
    if (!list || !settings) goto out;
    if (rd_rdma_list(RD_RDMA_SYSFS, settings, list, RD_RDMA_PORTS, &count) != RONDO_SUCCESS) {
        rd_find(f, section, "rdma", RD_LEVEL_WARNING, "correct or unset it", "%s", rd_last_error());
        goto out;
    }
    bool any = nearest(settings, RD_NO_GPU, &rails, &port);
    for (int i = 0; i < count && i < 16; i++) show_port(f, section, &list[i], &rails);
    const rd_rdma_port *best = rd_rdma_choose(list, count, any ? rails.port[port] : NULL, NULL, why, sizeof why);
    if (!built)
        rd_find(f, section, "verbs", RD_LEVEL_INFO, NULL, "this build has no verbs: rdma-core's headers (libibverbs-dev) were "
                "not there when it was made; %s", why);
    else if (!best) rd_find(f, section, "verbs", RD_LEVEL_INFO, NULL, "%s; links between hosts use tcp", why);
    else if (can_open(f, section, best)) {
        rd_find(f, section, "verbs", RD_LEVEL_OK, NULL, "links between hosts use RDMA where both ranks can: %s", why);
        show_gpus(f, section, settings);
    }
out:
    free(list);
}
