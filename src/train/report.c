/* Reports: from a train function to the driver, and from there to people, stdout and a file. */
#include "train/train_priv.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { MAX_VALUES = 8 };

raia_status raia_report_values(raia_context *context, const raia_value *values, size_t count)
{
    if (count == 0 || count > MAX_VALUES)
        return fail(RAIA_EINVAL, "raia_report: %zu values; 1 to %d are possible", count,
                    MAX_VALUES);
    for (size_t i = 0; i < count; i++)
        if (values[i].key == NULL || values[i].key[0] == '\0' || strlen(values[i].key) > 64 ||
            strcmp(values[i].key, "event") == 0)
            return fail(RAIA_EINVAL, "raia_report: value %zu has no usable name", i + 1);
    if (context->world.rank != 0)
        return RAIA_OK;
    /* An array of pairs keeps the order, and the sign of what JSON has no number for. */
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        double v = values[i].value;
        bool whole = v == floor(v) && fabs(v) < 9e15;
        json_t *number = !isfinite(v) ? json_null()
                         : whole      ? json_integer((json_int_t)v)
                                      : json_real(v);
        json_array_append_new(list, json_pack("[s, o]", values[i].key, number));
    }
    json_t *event = json_pack("{s:s, s:o}", "event", "report", "values", list);
    if (event == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status = control_event(context->control, event);
    json_decref(event);
    return status;
}

raia_status reports_open(struct reports *reports, const struct settings *settings)
{
    *reports = (struct reports){ .settings = settings };
    const char *path = settings->run.report_file;
    if (path == NULL)
        return RAIA_OK;
    reports->file = fopen(path, "we");
    if (reports->file == NULL)
        return fail(RAIA_EIO, "cannot write the report file %s: %s", path, strerror(errno));
    return RAIA_OK;
}

void reports_event(struct reports *reports, const json_t *event)
{
    size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(10);
    FILE *to[] = { reports->settings->run.json ? stdout : NULL, reports->file };
    for (size_t i = 0; i < sizeof to / sizeof to[0]; i++) {
        if (to[i] == NULL)
            continue;
        json_dumpf(event, to[i], flags);
        fputc('\n', to[i]);
        fflush(to[i]);
    }
}

static void format_line(const struct reports *r, const json_t *values, struct buf *line)
{
    size_t i;
    json_t *pair;
    json_array_foreach(values, i, pair)
    {
        const char *key = json_string_value(json_array_get(pair, 0));
        const json_t *number = json_array_get(pair, 1);
        const char *gap = i > 0 ? "  " : "";
        if (json_is_null(number))
            buf_printf(line, "%s%s nan", gap, key);
        else if (strcmp(key, "step") == 0 && r->settings->run.total_steps > 0)
            buf_printf(line, "%sstep %.0f/%d", gap, json_number_value(number) + 1,
                       r->settings->run.total_steps);
        else
            buf_printf(line, "%s%s %.5g", gap, key, json_number_value(number));
    }
}

void reports_flush(struct reports *reports)
{
    if (reports->pending[0] != '\0')
        fprintf(stderr, "%s\n", reports->pending);
    reports->pending[0] = '\0';
}

/* At most a few lines a second: a fast run must not drown its log. */
static void show(struct reports *r, const json_t *values)
{
    struct buf line = { 0 };
    format_line(r, values, &line);
    snprintf(r->pending, sizeof r->pending, "%s", line.data != NULL ? line.data : "");
    buf_release(&line);
    double now = clock_s();
    if (r->steps > 1 && now - r->shown_s < 0.5)
        return;
    r->shown_s = now;
    reports_flush(r);
}

static bool well_formed(const json_t *values)
{
    size_t i;
    json_t *pair;
    json_array_foreach(values, i, pair)
    {
        const json_t *number = json_array_get(pair, 1);
        if (!json_is_string(json_array_get(pair, 0)) ||
            !(json_is_number(number) || json_is_null(number)))
            return false;
    }
    return json_array_size(values) > 0;
}

void reports_add(struct reports *reports, const json_t *values)
{
    if (!well_formed(values))
        return;
    json_t *event = json_object();
    bool step = false;
    size_t i;
    json_t *pair;
    json_array_foreach(values, i, pair) step =
        step || strcmp(json_string_value(json_array_get(pair, 0)), "step") == 0;
    json_object_set_new(event, "event", json_string(step ? "step" : "report"));
    json_array_foreach(values, i, pair)
        json_object_set(event, json_string_value(json_array_get(pair, 0)), json_array_get(pair, 1));
    reports->steps += step;
    if (!step)
        reports_flush(reports);
    show(reports, values);
    if (!step)
        reports_flush(reports);
    reports_event(reports, event);
    json_decref(event);
}

void reports_close(struct reports *reports)
{
    reports_flush(reports);
    if (reports->file != NULL)
        fclose(reports->file);
    reports->file = NULL;
}
