/* Version, health, and the cluster's state. */
#include "cluster/head_priv.h"

#include <string.h>

/* Contract: what Ray's clients ask before anything else. They compare ray_version with the releases
 * that brought a feature, so it names the release whose job interface this is. */
static const char jobs_api[] = "4", ray_version[] = "2.52.0";

void api_version(struct web_request *request)
{
    const struct head *head = web_self(request);
    web_object(request, MHD_HTTP_OK,
               json_pack("{s:s, s:s, s:s, s:s}", "version", jobs_api, "ray_version", ray_version,
                         "ray_commit", "raia-" RAIA_VERSION, "session_name", head->session));
}

void api_health(struct web_request *request)
{
    web_text(request, MHD_HTTP_OK, "success");
}

static json_t *node_json(const struct node *node)
{
    int gpus = 0;
    for (int i = 0; i < node->gpus; i++)
        gpus += node->gpu_used[i];
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:I, s:i}", "id", node->id,
                     "name", node->name, "host", node->host, "address", node_address(node), "here",
                     node->ws != NULL, "workers", node->workers, "workers_used", node->used_workers,
                     "gpus", node->gpus, "gpus_used", gpus, "cpus", node->cpus, "memory",
                     (json_int_t)node->memory, "entrypoints", node->entrypoints);
}

void api_status(struct web_request *request)
{
    struct head *head = web_self(request);
    const struct node *node;
    struct job *job, *next;
    json_t *nodes = json_array(), *jobs = json_object();
    int counts[5] = { 0 };
    DL_FOREACH(head->nodes, node)
    json_array_append_new(nodes, node_json(node));
    HASH_ITER(hh, head->jobs, job, next)
    counts[job_shown_status(job, NULL)]++;
    for (int i = 0; i < 5; i++)
        json_object_set_new(jobs, job_status_name((enum job_status)i), json_integer(counts[i]));
    web_object(request, MHD_HTTP_OK,
               json_pack("{s:s, s:s, s:i, s:o, s:o}", "address", head->address, "version",
                         RAIA_VERSION, "expected_workers", head->config.expected_workers, "nodes",
                         nodes, "jobs", jobs));
}
