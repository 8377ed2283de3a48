/* What compiled code does most often through Python's general ways, done in one step. Nothing needs it: core/inner.py
   says what is used where this is not there.

   made(class): a named tuple's class is called through its `__new__`, a Python function that packs its arguments into a
   tuple, of which another one is made: some 2,000 instructions. A class may say itself how it is called
   (`tp_vectorcall`); what stands here makes the tuple right away, and leaves whatever is wrong with a call to the
   class's own way.

   read(class): to read a field, Python looks up its descriptor in the class and asks that. Here the place of the field is
   remembered by class and name, as long as the class is as it was (`tp_version_tag`); whatever is no field goes the
   usual way.

   heappush, heappop, heapreplace, place_of: `heapq` and `bisect_left` of tuples that begin with numbers. What is neither
   a float nor an int is compared the usual way.

   put: what it says. */

#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include "structmember.h"

static PyObject *fields_name, *defaults_name; /* interned */
static PyObject *last_fields;                 /* by class: the defaults of its last fields, in order */

/* --- made ------------------------------------------------------------------------------------------------------ */

/* As the class would have made it: for calls that are wrong, so that the error is the usual one. */
static PyObject *
make_its_own_way(PyObject *type, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *keywords = NULL, *made = NULL;
    PyObject *placed = PyTuple_New(count);
    if (placed == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(args[i]);
        PyTuple_SET_ITEM(placed, i, args[i]);
    }
    if (names != NULL) {
        keywords = PyDict_New();
        for (Py_ssize_t i = 0; keywords != NULL && i < PyTuple_GET_SIZE(names); i++)
            if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[count + i]) < 0)
                Py_CLEAR(keywords);
    }
    if (names == NULL || keywords != NULL)
        made = PyType_Type.tp_call(type, placed, keywords);
    Py_DECREF(placed);
    Py_XDECREF(keywords);
    return made;
}

static inline void
put(PyTupleObject *made, Py_ssize_t place, PyObject *value)
{
    Py_INCREF(value);
    made->ob_item[place] = value;
}

/* Where some fields are given by name, or left to their defaults. */
static PyObject *
make_in_part(PyObject *type, Py_ssize_t size, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *values[16] = {NULL};
    Py_ssize_t known = names == NULL ? 0 : PyTuple_GET_SIZE(names), used = 0;
    PyObject *last = PyDict_GetItemWithError(last_fields, type);
    PyObject *fields = known ? PyDict_GetItemWithError(((PyTypeObject *)type)->tp_dict, fields_name) : NULL;
    if (last == NULL || count + known > size || (known && fields == NULL))
        return PyErr_Occurred() ? NULL : make_its_own_way(type, args, count, names);
    for (Py_ssize_t i = 0; i < size; i++) {
        if (i < count)
            values[i] = args[i];
        for (Py_ssize_t k = 0; values[i] == NULL && k < known; k++) {
            PyObject *name = PyTuple_GET_ITEM(names, k), *field = PyTuple_GET_ITEM(fields, i);
            if (name == field || PyUnicode_Compare(name, field) == 0) {
                values[i] = args[count + k];
                used++;
            }
        }
        Py_ssize_t place = i - size + PyTuple_GET_SIZE(last);
        if (values[i] == NULL && place >= 0)
            values[i] = PyTuple_GET_ITEM(last, place);
        if (values[i] == NULL)
            return make_its_own_way(type, args, count, names);
    }
    if (used < known)
        return make_its_own_way(type, args, count, names);
    PyTupleObject *made = PyObject_GC_NewVar(PyTupleObject, (PyTypeObject *)type, size);
    if (made == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < size; i++)
        put(made, i, values[i]);
    PyObject_GC_Track(made);
    return (PyObject *)made;
}

#define MAKER(SIZE)                                                                                                    \
    static PyObject *make_##SIZE(PyObject *type, PyObject *const *args, size_t flags, PyObject *names)                 \
    {                                                                                                                  \
        Py_ssize_t count = PyVectorcall_NARGS(flags);                                                                  \
        if (names != NULL || count != SIZE)                                                                            \
            return make_in_part(type, SIZE, args, count, names);                                                       \
        PyTupleObject *made = PyObject_GC_NewVar(PyTupleObject, (PyTypeObject *)type, SIZE);                           \
        if (made == NULL)                                                                                              \
            return NULL;                                                                                               \
        for (int i = 0; i < SIZE; i++)                                                                                 \
            put(made, i, args[i]);                                                                                     \
        PyObject_GC_Track(made);                                                                                       \
        return (PyObject *)made;                                                                                       \
    }

MAKER(1) MAKER(2) MAKER(3) MAKER(4) MAKER(5) MAKER(6) MAKER(7) MAKER(8) MAKER(9) MAKER(10) MAKER(11) MAKER(12)

static const vectorcallfunc makers[] = {NULL,   make_1, make_2, make_3,  make_4,  make_5, make_6,
                                        make_7, make_8, make_9, make_10, make_11, make_12};

/* The defaults of the last fields that have one; a new reference. */
static PyObject *
defaults_of_last(PyObject *fields, PyObject *defaults)
{
    Py_ssize_t size = PyTuple_GET_SIZE(fields), count = defaults == NULL ? 0 : PyDict_Size(defaults);
    if (count < 0 || count > size)
        return NULL;
    PyObject *found = PyTuple_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *value = PyDict_GetItemWithError(defaults, PyTuple_GET_ITEM(fields, size - count + i));
        if (value == NULL) {
            Py_CLEAR(found);
            break;
        }
        Py_INCREF(value);
        PyTuple_SET_ITEM(found, i, value);
    }
    return found;
}

/* made(class) -> whether it is made in one step from now on. */
static PyObject *
made(PyObject *module, PyObject *given)
{
#ifndef Py_GIL_DISABLED
    PyTypeObject *type = (PyTypeObject *)given;
    if (!PyType_Check(given) || !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) /* others may have no dictionary */
        Py_RETURN_FALSE;
    PyObject *fields = PyDict_GetItemWithError(type->tp_dict, fields_name);
    /* Of a tuple's layout, with nothing of its own in how it is called, made or set up. */
    if (fields == NULL || !PyTuple_CheckExact(fields) || PyTuple_GET_SIZE(fields) < 1
        || (size_t)PyTuple_GET_SIZE(fields) >= sizeof(makers) / sizeof(makers[0]) || type->tp_base != &PyTuple_Type
        || type->tp_basicsize != PyTuple_Type.tp_basicsize || type->tp_dictoffset != 0 || type->tp_weaklistoffset != 0
        || Py_TYPE(type) != &PyType_Type || type->tp_init != PyBaseObject_Type.tp_init || type->tp_vectorcall != NULL)
        Py_RETURN_FALSE;
    PyObject *last = defaults_of_last(fields, PyDict_GetItemWithError(type->tp_dict, defaults_name));
    if (last == NULL) {
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    int failed = PyDict_SetItem(last_fields, given, last);
    Py_DECREF(last);
    if (failed)
        return NULL;
    type->tp_vectorcall = makers[PyTuple_GET_SIZE(fields)];
    Py_RETURN_TRUE;
#else
    Py_RETURN_FALSE;
#endif
}

/* --- read ------------------------------------------------------------------------------------------------------ */

/* Where a field of a class is. The name is owned; the class is not: one that has gone, and another in its place, have
   different tags. */
typedef struct {
    PyTypeObject *type;
    PyObject *name;
    unsigned int tag;
    Py_ssize_t offset; /* bytes from the begin of the object; -1: the name is of no field */
} Place;

static Place places[4096]; /* two for what falls together */

/* Bytes from the begin of the object; -1 where the name is of no field. */
static Py_ssize_t
offset_of(PyTypeObject *type, PyObject *name)
{
    Py_ssize_t offset = -1;
    PyObject *found = PyObject_GetAttr((PyObject *)type, name); /* a field's descriptor, asked by the class, is itself */
    if (found == NULL) {
        PyErr_Clear();
        return -1;
    }
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        if (member->type == T_OBJECT_EX && PyType_IsSubtype(type, PyDescr_TYPE(found)))
            offset = member->offset;
    }
    else if (PyType_HasFeature(type, Py_TPFLAGS_TUPLE_SUBCLASS)
             && strcmp(Py_TYPE(found)->tp_name, "_collections._tuplegetter") == 0) {
        PyObject *parts = PyObject_CallMethod(found, "__reduce__", NULL); /* (class, (index, text)) */
        Py_ssize_t index = -1;
        PyObject *text, *getter;
        if (parts == NULL || !PyArg_ParseTuple(parts, "O(nO)", &getter, &index, &text))
            PyErr_Clear();
        else if (index >= 0)
            offset = offsetof(PyTupleObject, ob_item) + index * (Py_ssize_t)sizeof(PyObject *);
        Py_XDECREF(parts);
    }
    Py_DECREF(found);
    return offset;
}

static inline int
is_of(Place *place, PyTypeObject *type, PyObject *name)
{
    return place->type == type && place->name == name && place->tag == type->tp_version_tag && place->tag != 0;
}

static PyObject *
read_field(PyObject *object, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(object);
    Place *place = &places[(((uintptr_t)type >> 4 ^ (uintptr_t)name >> 3) % (sizeof(places) / sizeof(places[0]))) & ~1];
    if (!is_of(place, type, name) && !is_of(++place, type, name)) {
        if (!PyUnicode_CheckExact(name) || !PyUnicode_CHECK_INTERNED(name))
            return PyObject_GenericGetAttr(object, name);
        Py_ssize_t offset = offset_of(type, name); /* gives the class a tag, unless there are no more */
        if (type->tp_version_tag == 0)
            return PyObject_GenericGetAttr(object, name);
        Py_XDECREF(place->name);
        *place = place[-1];
        Py_INCREF(name);
        *--place = (Place){type, name, type->tp_version_tag, offset};
    }
    if (place->offset < 0)
        return PyObject_GenericGetAttr(object, name);
    if (PyType_HasFeature(type, Py_TPFLAGS_TUPLE_SUBCLASS)
        && place->offset >= (Py_ssize_t)(offsetof(PyTupleObject, ob_item) + Py_SIZE(object) * sizeof(PyObject *)))
        return PyObject_GenericGetAttr(object, name);
    PyObject *value = *(PyObject **)((char *)object + place->offset);
    if (value == NULL) /* never set: the usual error */
        return PyObject_GenericGetAttr(object, name);
    Py_INCREF(value);
    return value;
}

/* read(class) -> whether its fields are read in one step from now on. */
static PyObject *
read_quickly(PyObject *module, PyObject *given)
{
#ifndef Py_GIL_DISABLED
    if (!PyType_Check(given))
        Py_RETURN_FALSE;
    PyTypeObject *type = (PyTypeObject *)given;
    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || type->tp_getattro != PyObject_GenericGetAttr)
        Py_RETURN_FALSE;
    type->tp_getattro = read_field;
    Py_RETURN_TRUE;
#else
    Py_RETURN_FALSE;
#endif
}

/* --- in order -------------------------------------------------------------------------------------------------- */

static inline int
plain_tuple(PyObject *given)
{
    return PyTuple_Check(given) && Py_TYPE(given)->tp_richcompare == PyTuple_Type.tp_richcompare;
}

/* Whether one tuple is before another: 1, 0, or -1 for an error. */
static int
before(PyObject *one, PyObject *other)
{
    if (plain_tuple(one) && plain_tuple(other)) {
        Py_ssize_t size = PyTuple_GET_SIZE(one) < PyTuple_GET_SIZE(other) ? PyTuple_GET_SIZE(one) : PyTuple_GET_SIZE(other);
        Py_ssize_t i = 0;
        for (; i < size; i++) {
            PyObject *a = PyTuple_GET_ITEM(one, i), *b = PyTuple_GET_ITEM(other, i);
            if (a == b)
                continue;
            if (PyFloat_CheckExact(a) && PyFloat_CheckExact(b)) {
                if (PyFloat_AS_DOUBLE(a) == PyFloat_AS_DOUBLE(b))
                    continue;
                return PyFloat_AS_DOUBLE(a) < PyFloat_AS_DOUBLE(b);
            }
            if (!PyLong_CheckExact(a) || !PyLong_CheckExact(b))
                break;
            int large, larger;
            long x = PyLong_AsLongAndOverflow(a, &large), y = PyLong_AsLongAndOverflow(b, &larger);
            if (large || larger)
                break;
            if (x != y)
                return x < y;
        }
        if (i == size)
            return PyTuple_GET_SIZE(one) < PyTuple_GET_SIZE(other);
    }
    Py_INCREF(one);
    Py_INCREF(other);
    int found = PyObject_RichCompareBool(one, other, Py_LT);
    Py_DECREF(one);
    Py_DECREF(other);
    return found;
}

/* The same of two entries of a list, which nobody may have changed meanwhile. */
static int
before_at(PyObject *list, Py_ssize_t size, Py_ssize_t one, Py_ssize_t other)
{
    int found = before(PyList_GET_ITEM(list, one), PyList_GET_ITEM(list, other));
    if (found >= 0 && PyList_GET_SIZE(list) != size) {
        PyErr_SetString(PyExc_RuntimeError, "list changed size during iteration");
        return -1;
    }
    return found;
}

static inline void
swap(PyObject *list, Py_ssize_t one, Py_ssize_t other)
{
    PyObject *item = PyList_GET_ITEM(list, one);
    PyList_SET_ITEM(list, one, PyList_GET_ITEM(list, other));
    PyList_SET_ITEM(list, other, item);
}

/* As `heapq` has it, step by step: the list is in the same order afterwards, too. */
static int
rise(PyObject *heap, Py_ssize_t start, Py_ssize_t at)
{
    Py_ssize_t size = PyList_GET_SIZE(heap);
    while (at > start) {
        Py_ssize_t parent = (at - 1) >> 1;
        int less = before_at(heap, size, at, parent);
        if (less <= 0)
            return less;
        swap(heap, at, parent);
        at = parent;
    }
    return 0;
}

static int
sink(PyObject *heap, Py_ssize_t at)
{
    Py_ssize_t size = PyList_GET_SIZE(heap), start = at;
    while (at < size >> 1) {
        Py_ssize_t child = 2 * at + 1;
        if (child + 1 < size) {
            int less = before_at(heap, size, child, child + 1);
            if (less < 0)
                return -1;
            child += !less;
        }
        swap(heap, at, child);
        at = child;
    }
    return rise(heap, start, at);
}

static int
is_list(PyObject *given)
{
    if (PyList_Check(given))
        return 1;
    PyErr_Format(PyExc_TypeError, "heap argument must be a list, not %.200s", Py_TYPE(given)->tp_name);
    return 0;
}

static PyObject *
heap_push(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "heappush expected 2 arguments, got %zd", count);
    if (!is_list(args[0]) || PyList_Append(args[0], args[1]) < 0
        || rise(args[0], 0, PyList_GET_SIZE(args[0]) - 1) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
heap_pop(PyObject *module, PyObject *heap)
{
    if (!is_list(heap))
        return NULL;
    Py_ssize_t size = PyList_GET_SIZE(heap);
    if (size == 0) {
        PyErr_SetString(PyExc_IndexError, "index out of range");
        return NULL;
    }
    PyObject *last = PyList_GET_ITEM(heap, size - 1);
    Py_INCREF(last);
    if (PyList_SetSlice(heap, size - 1, size, NULL) < 0) {
        Py_DECREF(last);
        return NULL;
    }
    if (size == 1)
        return last;
    PyObject *first = PyList_GET_ITEM(heap, 0);
    PyList_SET_ITEM(heap, 0, last);
    if (sink(heap, 0) < 0) {
        Py_DECREF(first);
        return NULL;
    }
    return first;
}

static PyObject *
heap_replace(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "heapreplace expected 2 arguments, got %zd", count);
    if (!is_list(args[0]))
        return NULL;
    if (PyList_GET_SIZE(args[0]) == 0) {
        PyErr_SetString(PyExc_IndexError, "index out of range");
        return NULL;
    }
    PyObject *first = PyList_GET_ITEM(args[0], 0);
    Py_INCREF(args[1]);
    PyList_SET_ITEM(args[0], 0, args[1]);
    if (sink(args[0], 0) < 0) {
        Py_DECREF(first);
        return NULL;
    }
    return first;
}

static PyObject *
place_of(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "place_of expected 2 arguments, got %zd", count);
    if (!is_list(args[0]))
        return NULL;
    Py_ssize_t low = 0, high = PyList_GET_SIZE(args[0]), size = high;
    while (low < high) {
        Py_ssize_t middle = (low + high) >> 1;
        int less = before(PyList_GET_ITEM(args[0], middle), args[1]);
        if (less >= 0 && PyList_GET_SIZE(args[0]) != size) {
            PyErr_SetString(PyExc_RuntimeError, "list changed size during iteration");
            return NULL;
        }
        if (less < 0)
            return NULL;
        if (less)
            low = middle + 1;
        else
            high = middle;
    }
    return PyLong_FromSsize_t(low);
}

/* --- dictionaries ---------------------------------------------------------------------------------------------- */

/* put(dictionary, key, value): `dict.__setitem__`, whatever a class derived from it does. */
static PyObject *
put_into(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyDict_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "put expected a dictionary, a key and a value");
        return NULL;
    }
    if (PyDict_SetItem(args[0], args[1], args[2]) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"made", made, METH_O, NULL},
    {"read", read_quickly, METH_O, NULL},
    {"heappush", (PyCFunction)(void (*)(void))heap_push, METH_FASTCALL, NULL},
    {"heappop", heap_pop, METH_O, NULL},
    {"heapreplace", (PyCFunction)(void (*)(void))heap_replace, METH_FASTCALL, NULL},
    {"place_of", (PyCFunction)(void (*)(void))place_of, METH_FASTCALL, NULL},
    {"put", (PyCFunction)(void (*)(void))put_into, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dally.core.native", NULL, -1, functions};

PyMODINIT_FUNC
PyInit_dally___core___native(void)
{
    fields_name = PyUnicode_InternFromString("_fields");
    defaults_name = PyUnicode_InternFromString("_field_defaults");
    last_fields = PyDict_New();
    if (fields_name == NULL || defaults_name == NULL || last_fields == NULL)
        return NULL;
    return PyModule_Create(&definition);
}
