/* SPDX-License-Identifier: Apache-2.0
 *
 * gloo::allreduce over TCP, the only transport between hosts' processes that Debian's package has (none is for shared
 * memory), to be timed by serve.c. `rondo run` says who is who; the ranks meet in files of a directory beside PAGE.
 */
extern "C" {
#include "serve.h"
}

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

static std::shared_ptr<gloo::rendezvous::Context> context;

static void sum(void *to, const void *a, const void *b, size_t count)
{
    gloo::sum<float>(static_cast<float *>(to), static_cast<const float *>(a), static_cast<const float *>(b), count);
}

static bool call(const float *from, float *to, size_t count)
{
    try {
        gloo::AllreduceOptions options(context);
        if (from != to) options.setInput(const_cast<float *>(from), count); /* which is only read */
        options.setOutput(to, count);
        options.setReduceFunction(sum);
        gloo::allreduce(options);
    } catch (const std::exception &error) {
        fprintf(stderr, "gloo: %s\n", error.what());
        return false;
    }
    return true;
}

static void connect(int rank, int size, const std::string &meeting_place)
{
    mkdir(meeting_place.c_str(), 0700); /* one of the ranks makes it */
    gloo::rendezvous::FileStore store(meeting_place);
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->connectFullMesh(store, device);
    gloo::BarrierOptions all(context);
    gloo::barrier(all);
    if (rank == 0) std::filesystem::remove_all(meeting_place);
}

int main(int argc, char **argv)
{
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    if (argc != 3 || !rank || !size) {
        fprintf(stderr, "usage: rondo run -n N -- %s PAGE CPUS\n", argv[0]);
        return 2;
    }
    peers_bind(argc, argv);
    try {
        connect(atoi(rank), atoi(size), std::string(argv[1]) + ".gloo");
    } catch (const std::exception &error) {
        fprintf(stderr, "gloo: %s\n", error.what());
        return 1;
    }
    contestant gloo = {nullptr, call, true};
    int status = peers_serve(argc, argv, atoi(rank), atoi(size), &gloo);
    context.reset();
    return status;
}
