/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h - one line to standard error, if RONDO_DEBUG (NONE, WARN, INFO, TRACE; default WARN) asks for it.
 * RD_LOG_NONE is for what somebody has asked for by name.
 */
#ifndef RD_BASE_LOG_H
#define RD_BASE_LOG_H

enum rd_log_level { RD_LOG_NONE, RD_LOG_WARN, RD_LOG_INFO, RD_LOG_TRACE };

/* Lines look like "rondo[pid] WARN: text"; one write each, so that ranks' lines do not mix. */
void rd_log(enum rd_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
int rd_log_wants(enum rd_log_level level);
void rd_log_set(enum rd_log_level level);
/* From now on to this descriptor, which stays open. */
void rd_log_to(int fd);

#endif
