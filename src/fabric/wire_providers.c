/* Which libfabric providers raia can use, and the choice among them. A new provider is a row of the
 * table. */
#include "fabric/wire_priv.h"

#include <stdlib.h>
#include <string.h>

const struct wire_provider wire_providers[WIRE_PROVIDERS] = {
    /* Before 1.18 the efa provider cannot be relied on for messages beyond one packet. */
    { "efa", "efa", FI_VERSION(1, 18), false },
    { "verbs", "verbs;ofi_rxm", 0, false },
    /* Native reliable datagrams over TCP: a provider of its own in 1.16 and 1.17, part of `tcp`
     * since. In 1.17 it exchanges 64 KiB 2.8 times and 1 MiB 1.2 times as fast as `tcp;ofi_rxm`
     * does, 4 MiB as fast; only at 64 MiB is it slower. */
    { "tcp", "net", 0, true },
    { "tcp", "tcp", 0, true },
    { "tcp", "tcp;ofi_rxm", 0, true },
};

enum { API_NEWEST = FI_VERSION(1, 18), API_OLDEST = FI_VERSION(1, 14) };

bool wire_name_covers(const char *name, const struct wire_provider *provider)
{
    return strcmp(name, "auto") == 0 || strcmp(name, provider->family) == 0;
}

/* Whether one name of FI_PROVIDER's list is in the provider's name, whose layers are separated by
 * ';'. */
static bool layer_matches(const char *item, size_t len, const char *provider)
{
    while (*provider != '\0') {
        size_t layer = strcspn(provider, ";");
        if (layer == len && strncasecmp(item, provider, len) == 0)
            return true;
        provider += layer + (provider[layer] == ';');
    }
    return false;
}

bool wire_filter_allows(const char *filter, const struct wire_provider *provider)
{
    if (filter == NULL || filter[0] == '\0')
        return true;
    bool exclude = filter[0] == '^';
    bool any = false;
    for (filter += exclude; *filter != '\0';) {
        size_t len = strcspn(filter, ",");
        any = any || (len > 0 && (strncasecmp(filter, provider->name, len) == 0 ||
                                  layer_matches(filter, strcspn(filter, ",;"), provider->name)));
        filter += len + (filter[len] == ',');
    }
    return any != exclude;
}

static bool known(const char *name)
{
    if (strcmp(name, "auto") == 0 || strcmp(name, "shm") == 0)
        return true;
    for (int i = 0; i < WIRE_PROVIDERS; i++)
        if (strcmp(name, wire_providers[i].family) == 0)
            return true;
    return false;
}

raia_status wire_check_name(const char *name, int nodes)
{
    const char *filter = env_get("FI_PROVIDER", NULL);
    if (!known(name))
        return fail(RAIA_EINVAL, "unknown fabric '%s'; choose auto, efa, verbs, tcp or shm", name);
    if (strcmp(name, "shm") == 0)
        return nodes == 1 ? RAIA_OK
                          : fail(RAIA_EINVAL,
                                 "fabric 'shm' cannot join %d nodes: memory is shared within one "
                                 "node only; choose auto, efa, verbs or tcp",
                                 nodes);
    if (nodes == 1 && strcmp(name, "auto") == 0)
        return RAIA_OK; /* no endpoint will be opened */
    for (int i = 0; i < WIRE_PROVIDERS; i++)
        if (wire_name_covers(name, &wire_providers[i]) &&
            wire_filter_allows(filter, &wire_providers[i]))
            return RAIA_OK;
    return fail(RAIA_EINVAL,
                "FI_PROVIDER=%s and fabric '%s' contradict each other; unset FI_PROVIDER or choose "
                "another fabric",
                filter, name);
}

/* ---- what is there ---- */

static struct fi_info *make_hints(const struct wire_lib *lib, const struct wire_provider *provider)
{
    struct fi_info *hints = lib->dupinfo(NULL);
    if (hints == NULL)
        return NULL;
    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->tx_attr->msg_order = FI_ORDER_SAS; /* READYs of one tag are told apart by their order */
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->fabric_attr->prov_name = strdup(provider->name);
    return hints;
}

/* A hint "tcp" also brings layered providers: only the very name counts. Of several addresses
 * IPv4's is preferred where the provider has such. */
static struct fi_info *pick(const struct wire_lib *lib, const struct wire_provider *provider,
                            const struct fi_info *list)
{
    const struct fi_info *best = NULL;
    for (const struct fi_info *i = list; i != NULL; i = i->next) {
        if (strcmp(i->fabric_attr->prov_name, provider->name) != 0)
            continue;
        if (best == NULL ||
            (best->addr_format == FI_SOCKADDR_IN6 && i->addr_format == FI_SOCKADDR_IN))
            best = i;
    }
    return best != NULL ? lib->dupinfo(best) : NULL;
}

struct fi_info *wire_getinfo(const struct wire_lib *lib, const struct wire_provider *provider,
                             const char *address)
{
    if (lib->version() < provider->least)
        return NULL;
    uint32_t api = lib->version() >= API_NEWEST ? API_NEWEST : API_OLDEST;
    struct fi_info *hints = make_hints(lib, provider), *list = NULL, *found = NULL;
    if (hints == NULL)
        return NULL;
    const char *node = provider->by_address ? address : NULL;
    if (lib->getinfo(api, node, NULL, node != NULL ? FI_SOURCE : 0, hints, &list) == 0) {
        found = pick(lib, provider, list);
        lib->freeinfo(list);
    }
    lib->freeinfo(hints);
    return found;
}

raia_status wire_found(const struct wire_lib *lib, const char *name, const char *address,
                       json_t **out)
{
    const char *filter = env_get("FI_PROVIDER", NULL);
    *out = json_array();
    for (int i = 0; i < WIRE_PROVIDERS; i++) {
        const struct wire_provider *provider = &wire_providers[i];
        if (!wire_name_covers(name, provider) || !wire_filter_allows(filter, provider))
            continue;
        struct fi_info *info = wire_getinfo(lib, provider, address);
        if (info == NULL)
            continue;
        lib->freeinfo(info);
        json_array_append_new(*out, json_string(provider->name));
    }
    return *out != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory");
}

/* ---- the choice of all ranks ---- */

static bool has(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        if (item != NULL && strcmp(item, name) == 0)
            return true;
    }
    return false;
}

static bool all_have(const json_t *about, const char *name)
{
    for (size_t rank = 0; rank < json_array_size(about); rank++)
        if (!has(json_object_get(json_array_get(about, rank), "found"), name))
            return false;
    return json_array_size(about) > 0;
}

static void print_found(const json_t *rank, struct buf *out)
{
    const json_t *found = json_object_get(rank, "found");
    for (size_t i = 0; i < json_array_size(found); i++)
        buf_printf(out, "%s%s", i > 0 ? ", " : "", json_string_value(json_array_get(found, i)));
    if (json_array_size(found) == 0)
        buf_printf(out, "nothing");
}

/* One clause for each group of ranks that found the same. */
static raia_status fail_disagreement(const json_t *about)
{
    struct buf text = { .max = 1500 };
    size_t size = json_array_size(about);
    for (size_t first = 0; first < size; first++) {
        const json_t *rank = json_array_get(about, first), *found = json_object_get(rank, "found");
        bool seen = false;
        for (size_t i = 0; i < first && !seen; i++)
            seen = json_equal(json_object_get(json_array_get(about, i), "found"), found);
        if (seen)
            continue;
        buf_printf(&text, "%srank %zu", text.len > 0 ? "; " : "", first);
        for (size_t i = first + 1; i < size; i++)
            if (json_equal(json_object_get(json_array_get(about, i), "found"), found))
                buf_printf(&text, ", %zu", i);
        const char *wanted = json_string_value(json_object_get(rank, "wanted"));
        buf_printf(&text, " (fabric '%s') found ", wanted != NULL ? wanted : "?");
        print_found(rank, &text);
    }
    raia_status status = fail(RAIA_EFABRIC, "the ranks have no libfabric provider in common: %s",
                              text.data != NULL ? text.data : "");
    buf_release(&text);
    return status;
}

raia_status wire_agree(const json_t *about, const struct wire_provider **out)
{
    for (int i = 0; i < WIRE_PROVIDERS; i++)
        if (all_have(about, wire_providers[i].name)) {
            *out = &wire_providers[i];
            return RAIA_OK;
        }
    return fail_disagreement(about);
}
