/* SPDX-License-Identifier: Apache-2.0
 *
 * env.h - every setting: one table of name, type, default, range and help. The only file that reads RONDO_*.
 */
#ifndef RD_BASE_ENV_H
#define RD_BASE_ENV_H

#include "rondo.h"

#include <stdbool.h>

/* SETTING(field, "RONDO_NAME", kind, default text, least, most, "choices or NULL", "help")
 * kinds: SECONDS (double), NUMBER (long; choices name -1, -2 ...), BYTES (long, a multiple of 64, accepts K and M), CHOICE (index into the
 * |-separated choices), TEXT (const char *, NULL when unset), SWITCH (0 or 1; also off, no, false, on, yes, true) */
#define RD_SETTINGS(SETTING)                                                                                          \
    SETTING(timeout_s, "RONDO_TIMEOUT", SECONDS, "600", 0.001, 1e9, NULL,                                             \
            "seconds that start-up and each call may take")                                                           \
    SETTING(slow_warning_s, "RONDO_SLOW_WARNING", SECONDS, "10", 0.001, 1e9, NULL,                                    \
            "a start or a call longer than this warns once")                                                                     \
    SETTING(debug, "RONDO_DEBUG", CHOICE, "WARN", 0, 0, "NONE|WARN|INFO|TRACE",                                       \
            "how much is said on standard error")                                                                     \
    SETTING(device, "RONDO_DEVICE", NUMBER, "auto", -2, 1023, "auto|host",                                            \
            "GPU that this rank uses, by its number; auto: the caller's current one, if any; host: none")             \
    SETTING(transport, "RONDO_TRANSPORT", CHOICE, "auto", 0, 0, "auto|loop|shm|tcp|verbs|cuda_ipc",                        \
            "links to use; auto: the best that reaches; loop: ranks that are threads of one process")                 \
    SETTING(gpu_peer, "RONDO_GPU_PEER", SWITCH, "1", 0, 1, NULL,                                                      \
            "whether ranks of a host reach one another's GPU memory, where they can; 0: they go through host memory")   \
    SETTING(gpu_links, "RONDO_GPU_LINKS", NUMBER, "16", 0, 64, NULL,                                                  \
            "links on demand (of messages, gathers, all-to-alls) into a rank that have slots in its GPU's memory, 256 " \
            "KiB each, taken at the start; further ones go through host memory")                                      \
    SETTING(algo, "RONDO_ALGO", CHOICE, "auto", 0, 0, "auto|ring|flat|exchange|hier",                                          \
            "all-reduce algorithm; auto: flat where all ranks share a host, exchange up to 4 KiB sent (32 where they take "    \
            "turns), on several hosts hier (hierarchical) where a model says that it is faster, else ring")               \
    SETTING(numerics, "RONDO_NUMERICS", CHOICE, "auto", 0, 0, "auto|accurate|fast|strict",                            \
            "how floats are summed: accurate, those of 8 and 16 bits in float32 along the whole way; fast, rounded at " \
            "each hop of a ring; auto: fast where some rank uses a GPU, else accurate; strict: accurate, and every "   \
            "element in the order of ranks, so that its bits depend on the terms alone (slower)")                     \
    SETTING(cpu, "RONDO_CPU", CHOICE, "auto", 0, 0, "auto|portable|avx2|avx512",                                      \
            "instructions of the reduction kernels; avx512: with VBMI; the bits are the same")                                           \
    SETTING(channels, "RONDO_CHANNELS", NUMBER, "0", 0, 8, NULL,                                                      \
            "parallel rings; 0: as many as hosts have fast networks in common, on one host 1")                        \
    SETTING(slice_bytes, "RONDO_SLICE", BYTES, "262144", 4096, 262144, NULL,                                          \
            "pipeline unit")                                                             \
    SETTING(sockets, "RONDO_SOCKETS", NUMBER, "0", 0, 8, NULL,                                                        \
            "connections of a link; 0: 4 over TCP, 1 over RDMA")                                                                                   \
    SETTING(flat_ranks, "RONDO_FLAT_RANKS", NUMBER, "16", 1, 64, NULL,                                                \
            "flat all-reduce up to this many ranks on a host")                                                        \
    SETTING(spin, "RONDO_SPIN", NUMBER, "-1", -1, 1000000, NULL,                                                      \
            "polls before a wait yields; -1: 1000; when ranks share cores 20, without flat 0")                        \
    SETTING(trace, "RONDO_TRACE", TEXT, NULL, 0, 0, NULL, "file to append a record of every slice to (rondo_trace.h)") \
    SETTING(record, "RONDO_RECORD", TEXT, NULL, 0, 0, NULL,                                                           \
            "directory, made if it is missing, for the last calls of a communicator that ended by an error")          \
    SETTING(interface, "RONDO_INTERFACE", TEXT, NULL, 0, 0, NULL,                                                     \
            "network interfaces: a list of prefixes, =exact, ^not")                                                   \
    SETTING(rdma_device, "RONDO_RDMA_DEVICE", TEXT, NULL, 0, 0, NULL,                                                 \
            "RDMA devices: a list of prefixes, =exact, ^not; with a port: mlx5_0:1")                                  \
    SETTING(rdma_gid_index, "RONDO_RDMA_GID_INDEX", TEXT, NULL, 0, 0, NULL,                                           \
            "GID to use, 0 to 255, or by device: mlx5_0=3,mlx5_1=5; unset: RoCE v2 over IPv4 first")                  \
    SETTING(rdma_traffic_class, "RONDO_RDMA_TRAFFIC_CLASS", TEXT, "0", 0, 0, NULL,                                    \
            "traffic class, 0 to 255, or by device")                                                                  \
    SETTING(rdma_service_level, "RONDO_RDMA_SERVICE_LEVEL", TEXT, "0", 0, 0, NULL,                                    \
            "service level, 0 to 15, or by device")                                                                   \
    SETTING(rdma_pkey_index, "RONDO_RDMA_PKEY_INDEX", TEXT, "0", 0, 0, NULL,                                          \
            "index of the partition key, 0 to 65535, or by device")                                                   \
    SETTING(rdma_timeout, "RONDO_RDMA_TIMEOUT", NUMBER, "18", 8, 24, NULL,                                            \
            "T: an RDMA packet is sent again after 4.096 us * 2^T, 6 times")                                          \
    SETTING(rdma_eager, "RONDO_RDMA_EAGER", BYTES, "8192", 64, 65536, NULL,                                           \
            "slices up to this go through slots over RDMA, longer ones from and into user memory")                    \
    SETTING(rdma_gpu, "RONDO_RDMA_GPU", SWITCH, "1", 0, 1, NULL,                                                      \
            "1: RDMA devices read and write GPU memory where they can; 0: through host memory")                       \
    SETTING(port, "RONDO_PORT", NUMBER, "0", 0, 65535, NULL,                                                          \
            "TCP port of the rendezvous; 0: any")                                                                     \
    SETTING(key, "RONDO_KEY", TEXT, NULL, 0, 0, NULL,                                                                 \
            "job key, 64 hexadecimal digits")                                                                         \
    SETTING(key_file, "RONDO_KEY_FILE", TEXT, NULL, 0, 0, NULL,                                                       \
            "file of mode 0600 that holds the job key")                                                               \
    SETTING(require_key, "RONDO_REQUIRE_KEY", SWITCH, "0", 0, 1, NULL,                                                \
            "refuse to run without a key")

enum rd_setting_kind { RD_SECONDS, RD_NUMBER, RD_BYTES, RD_CHOICE, RD_TEXT, RD_SWITCH };

typedef struct rd_settings {
#define RD_FIELD_SECONDS double
#define RD_FIELD_NUMBER long
#define RD_FIELD_BYTES long
#define RD_FIELD_CHOICE long
#define RD_FIELD_TEXT const char *
#define RD_FIELD_SWITCH long
#define RD_FIELD(field, name, kind, initial, least, most, choices, help) RD_FIELD_##kind field;
    RD_SETTINGS(RD_FIELD)
#undef RD_FIELD
    bool allow_overlap; /* rondo_config's: no variable */
} rd_settings;

/* Values of the CHOICE settings. */
enum { RD_TRANSPORT_AUTO, RD_TRANSPORT_LOOP, RD_TRANSPORT_SHM, RD_TRANSPORT_TCP, RD_TRANSPORT_VERBS, RD_TRANSPORT_CUDA_IPC };
enum { RD_ALGO_AUTO, RD_ALGO_RING, RD_ALGO_FLAT, RD_ALGO_EXCHANGE, RD_ALGO_HIER };
enum { RD_NUMERICS_AUTO, RD_NUMERICS_ACCURATE, RD_NUMERICS_FAST, RD_NUMERICS_STRICT };
enum { RD_CPU_AUTO, RD_CPU_PORTABLE, RD_CPU_AVX2, RD_CPU_AVX512 };

/* Defaults, then what was suggested, then config (NULL: RONDO_CONFIG_INIT), then RONDO_*. A bad value in config is RONDO_INVALID_ARGUMENT; a
 * bad or unknown RONDO_* is a warning (once a process) that says the valid range or the nearest name, and what holds
 * without it stands; only a bad switch counts as 1, since a guard must not fall to a misspelling. Of config, the
 * fields that lie within its size are read. TEXT points into config or the environment. Sets the log level. */
rondo_result rd_settings_load(rd_settings *settings, const rondo_config *config);

/* What a setting is where neither the environment nor config says so: for a layer that reads its own variables. value is
 * kept by its address; NULL takes it back. false: there is no such setting, or this is no value of it. */
bool rd_settings_suggest(const char *name, const char *value);

/* From now on these warnings are for INFO: another process, with the same environment, gives them. */
void rd_settings_hush(void);

/* config->background, where config has it. */
bool rd_config_background(const rondo_config *config);

/* An environment variable that belongs to a launcher (RANK, WORLD_SIZE, ...), not to this table; NULL when unset or
 * empty. Here so that one file reads the environment. */
const char *rd_env(const char *name);

/* The settings as a table for people. */
struct rd_setting_info {
    const char *name, *initial, *choices, *help;
    enum rd_setting_kind kind;
    double least, most;
    size_t offset; /* of the field in rd_settings */
};
extern const struct rd_setting_info rd_setting_table[];
extern const int rd_setting_count;
void rd_setting_range(const struct rd_setting_info *setting, char *text, size_t bytes); /* "1 to 8", "ring or flat" */
/* The value in force; of a key only whether there is one. */
void rd_setting_value(const struct rd_setting_info *setting, const rd_settings *settings, char *text, size_t bytes);

/* Whether `text` is a value of this setting. */
bool rd_setting_valid(const struct rd_setting_info *setting, const char *text);
/* Variables that begin with RONDO_ and mean nothing, each with the setting whose name is nearest (NULL: none is). Returns
 * how many there are, of which the first `room` are listed. */
struct rd_unknown_setting {
    char name[96];
    const char *nearest;
};
int rd_settings_unknown(struct rd_unknown_setting *list, int room);

/* The candidate nearest to `word` by edit distance (a letter added, dropped, replaced, or two swapped; case does not
 * count), the first of equals; NULL when none is within a third of the word's length. For "did you mean". */
const char *rd_nearest(const char *word, const char *const *candidates, int count);

#endif
