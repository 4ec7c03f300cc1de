/* What cppcheck has to know of libraries whose headers it does not read: their loops assign, their
 * finds write. */
#define HASH_ITER(hh, head, el, tmp) for (el = (head), tmp = next_of(el); el; el = tmp)
#define HASH_FIND_STR(head, key, out) (out) = find_in(head, key)
#define HASH_FIND(hh, head, key, len, out) (out) = find_in(head, key)
#define DL_FOREACH(head, el) for (el = (head); el; el = el->next)
#define DL_FOREACH_SAFE(head, el, tmp) for (el = (head), tmp = el; el; el = tmp)
#define LL_FOREACH(head, el) for (el = (head); el; el = el->next)
#define json_array_foreach(array, index, value)                                                    \
    for (index = 0; index < json_array_size(array) && (value = json_array_get(array, index));      \
         index++)
#define json_object_foreach(object, key, value)                                                    \
    for (key = first_key(object), value = first_value(object); key; key = next_key(object))
