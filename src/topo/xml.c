/* SPDX-License-Identifier: Apache-2.0
 *
 * xml.c - a topology from a file that lstopo has written, and in words what is wrong with one.
 *
 * hwloc 2 reads files of version 2 and, translated, of version 1. What it cannot read it refuses by a number; most
 * files that are no topologies are told apart here before.
 */
#include "base/status.h"
#include "topo/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_ROOM = 1 << 16, MOST_XML = 64 << 20 };

static const char how[] = "a topology is a file that lstopo writes:  lstopo FILE.xml";

/* All that the descriptor has, and a zero behind it; NULL + errno (EFBIG: more than fits). */
static char *read_all(int fd, size_t *bytes)
{
    size_t room = FIRST_ROOM, used = 0;
    char *text = malloc(room);
    while (text) {
        ssize_t got = read(fd, text + used, room - 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        used += (size_t)got;
        if (got == 0) {
            text[used] = '\0';
            *bytes = used;
            return text;
        }
        if (used + 1 < room) continue;
        if (room >= MOST_XML) {
            errno = EFBIG;
            break;
        }
        char *more = realloc(text, room *= 2);
        if (!more) break;
        text = more;
    }
    int error = errno;
    free(text);
    errno = error;
    return NULL;
}

static char *read_file(const char *path, size_t *bytes)
{
    struct stat about;
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        rd_fail_errno("cannot open %s", path);
        return NULL;
    }
    if (fstat(fd, &about) == 0 && S_ISDIR(about.st_mode))
        rd_fail(RONDO_INVALID_ARGUMENT, "%s is a directory; %s", path, how);
    else if (!(text = read_all(fd, bytes)))
        rd_fail_errno("cannot read %s", path);
    close(fd);
    return text;
}

/* A topology of version 1 does not say its version. */
static rondo_result check(const char *path, const char *text, size_t bytes)
{
    const char *start = text + strspn(text, " \t\r\n"), *root = strstr(text, "<topology"), *version;
    if (!bytes) return rd_fail(RONDO_INVALID_ARGUMENT, "%s is empty; %s", path, how);
    if (strlen(text) != bytes || (*start != '<' && strncmp(start, "\xef\xbb\xbf<", 4) != 0))
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s is not XML; %s", path, how);
    if (!root) return rd_fail(RONDO_INVALID_ARGUMENT, "%s is XML, but has no <topology>; %s", path, how);
    version = strstr(root, "version=");
    if (version && version < root + strcspn(root, ">") && atoi(version + 9) > 2)
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s is of version %.*s of hwloc's format, and hwloc %d.%d reads 1 and 2; write it with:  lstopo "
                       "--export-xml-flags v2 FILE.xml",
                       path, (int)strcspn(version + 9, "\"'> "), version + 9, HWLOC_API_VERSION >> 16,
                       HWLOC_API_VERSION >> 8 & 0xff);
    if (!strstr(root, "</topology>"))
        return rd_fail(RONDO_INVALID_ARGUMENT, "%s is cut off: there is no </topology> at its end; copy it anew", path);
    if (!strstr(root, "type=\"PU\"") && !strstr(root, "type='PU'"))
        return rd_fail(RONDO_INVALID_ARGUMENT,
                       "%s describes no processing unit (PU), so no rank can run there; write it without lstopo's "
                       "--only and --ignore",
                       path);
    return RONDO_SUCCESS;
}

rondo_result rd_topology_set_xml(hwloc_topology_t topology, const char *path)
{
    size_t bytes = 0;
    char *text = read_file(path, &bytes);
    if (!text) return RONDO_INVALID_ARGUMENT;
    rondo_result result = check(path, text, bytes);
    if (result == RONDO_SUCCESS && hwloc_topology_set_xmlbuffer(topology, text, (int)bytes + 1))
        result =
            rd_fail(RONDO_INVALID_ARGUMENT,
                    "%s is damaged, or no topology: hwloc's parser refuses it; HWLOC_XML_VERBOSE=1 says where", path);
    free(text);
    return result;
}
