/* libfabric's objects: opened in order, closed in reverse. */
#include "fabric/wire_priv.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REGIONS_MAX = 1024, IDLE_POLLS = 64, IDLE_SLEEP_US = 50 };

static raia_status check(const struct wire_endpoint *ep, int code, const char *what)
{
    if (code == 0)
        return RAIA_OK;
    return fail(RAIA_EFABRIC, "libfabric provider %s: %s: %s", ep->info->fabric_attr->prov_name,
                what, ep->lib->strerror(-code));
}

/* Sleeping needs a descriptor; not every provider has one. */
static raia_status open_queue(struct wire_endpoint *ep)
{
    struct fi_cq_attr attr = { .size = WIRE_QUEUE,
                               .format = FI_CQ_FORMAT_TAGGED,
                               .wait_obj = FI_WAIT_FD };
    ep->can_sleep = fi_cq_open(ep->domain, &attr, &ep->cq, NULL) == 0;
    if (ep->can_sleep)
        return RAIA_OK;
    attr.wait_obj = FI_WAIT_NONE;
    return check(ep, fi_cq_open(ep->domain, &attr, &ep->cq, NULL), "completion queue");
}

static raia_status open_all(struct wire_endpoint *ep)
{
    struct fi_av_attr attr = { .type = FI_AV_TABLE };
    RAIA_TRY(check(ep, ep->lib->fabric(ep->info->fabric_attr, &ep->fabric, NULL), "fabric"));
    RAIA_TRY(check(ep, fi_domain(ep->fabric, ep->info, &ep->domain, NULL), "domain"));
    RAIA_TRY(check(ep, fi_av_open(ep->domain, &attr, &ep->av, NULL), "address vector"));
    RAIA_TRY(open_queue(ep));
    RAIA_TRY(check(ep, fi_endpoint(ep->domain, ep->info, &ep->ep, NULL), "endpoint"));
    RAIA_TRY(check(ep, fi_ep_bind(ep->ep, &ep->av->fid, 0), "binding the address vector"));
    RAIA_TRY(check(ep, fi_ep_bind(ep->ep, &ep->cq->fid, FI_TRANSMIT | FI_RECV),
                   "binding the completion queue"));
    return check(ep, fi_enable(ep->ep), "enabling the endpoint");
}

raia_status endpoint_open(struct wire_endpoint *ep, const struct wire_lib *lib,
                          const struct wire_provider *provider, const char *address)
{
    ep->lib = lib;
    ep->info = wire_getinfo(lib, provider, address);
    if (ep->info == NULL)
        return fail(RAIA_EFABRIC, "libfabric provider %s has gone since it was found",
                    provider->name);
    ep->local_mr = (ep->info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
    RAIA_TRY(MEM_NEW(&ep->regions, REGIONS_MAX));
    return open_all(ep);
}

void endpoint_stop(struct wire_endpoint *ep)
{
    if (ep->ep != NULL)
        fi_close(&ep->ep->fid);
    ep->ep = NULL;
}

void endpoint_close(struct wire_endpoint *ep)
{
    endpoint_stop(ep);
    if (ep->cq != NULL)
        fi_close(&ep->cq->fid);
    if (ep->av != NULL)
        fi_close(&ep->av->fid);
    for (int i = 0; i < ep->region_count; i++)
        fi_close(&ep->regions[i].mr->fid);
    if (ep->domain != NULL)
        fi_close(&ep->domain->fid);
    if (ep->fabric != NULL)
        fi_close(&ep->fabric->fid);
    if (ep->info != NULL)
        ep->lib->freeinfo(ep->info);
    free(ep->regions);
    *ep = (struct wire_endpoint){ 0 };
}

raia_status endpoint_name(const struct wire_endpoint *ep, void *name, size_t *len)
{
    return check(ep, fi_getname(&ep->ep->fid, name, len), "own address");
}

/* ---- registered memory ---- */

raia_status endpoint_register(struct wire_endpoint *ep, const void *base, size_t bytes,
                              struct fid_mr **out)
{
    bool chosen = (ep->info->domain_attr->mr_mode & FI_MR_PROV_KEY) != 0;
    uint64_t key = chosen ? 0 : ++ep->next_key;
    RAIA_TRY(check(ep, fi_mr_reg(ep->domain, base, bytes, FI_SEND | FI_RECV, 0, key, 0, out, NULL),
                   "registering memory"));
    if (!(ep->info->domain_attr->mr_mode & FI_MR_ENDPOINT))
        return RAIA_OK;
    int code = fi_mr_bind(*out, &ep->ep->fid, 0);
    if (code == 0)
        code = fi_mr_enable(*out);
    if (code != 0)
        fi_close(&(*out)->fid);
    return check(ep, code, "enabling registered memory");
}

raia_status endpoint_keep(struct wire_endpoint *ep, const void *base, size_t bytes)
{
    if (!ep->local_mr || endpoint_region(ep, base, bytes) != NULL)
        return RAIA_OK;
    if (ep->region_count == REGIONS_MAX)
        return fail(RAIA_EINVAL, "more than %d registered regions", REGIONS_MAX);
    struct fid_mr *mr;
    RAIA_TRY(endpoint_register(ep, base, bytes, &mr));
    ep->regions[ep->region_count++] = (struct wire_region){ base, bytes, mr };
    return RAIA_OK;
}

const struct wire_region *endpoint_region(const struct wire_endpoint *ep, const void *base,
                                          size_t bytes)
{
    const char *begin = base;
    for (int i = 0; i < ep->region_count; i++) {
        const struct wire_region *region = &ep->regions[i];
        if (begin >= region->base && bytes <= region->bytes &&
            (size_t)(begin - region->base) <= region->bytes - bytes)
            return region;
    }
    return NULL;
}

/* ---- waiting ---- */

/* Without a descriptor: in turn with others for a while, then a little sleep each time. */
static void pause_a_little(struct wire_endpoint *ep)
{
    if (++ep->idle < IDLE_POLLS) {
        sched_yield();
        return;
    }
    const struct timespec pause = { .tv_nsec = IDLE_SLEEP_US * 1000 };
    nanosleep(&pause, NULL);
}

ssize_t endpoint_read(struct wire_endpoint *ep, struct fi_cq_tagged_entry *entry, size_t count,
                      int ms)
{
    ssize_t n;
    if (ms == 0 || !ep->can_sleep) {
        n = fi_cq_read(ep->cq, entry, count);
    } else {
        /* Not poll(2) on the queue's descriptor: `net` of libfabric 1.17 leaves it readable. */
        n = fi_cq_sread(ep->cq, entry, count, NULL, ms);
    }
    if (n == -FI_EINTR || n == -FI_ETIMEDOUT)
        n = -FI_EAGAIN;
    if (n != -FI_EAGAIN)
        ep->idle = 0;
    else if (ms > 0 && !ep->can_sleep)
        pause_a_little(ep);
    return n;
}
