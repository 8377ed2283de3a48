/* Named tuples made in one step, where there is a compiled build (core/named.py says what for).

   A named tuple's class is called through its `__new__`, a Python function that packs its arguments into a tuple, of which
   another one is made: some 2,000 instructions. A class may say itself how it is called (`tp_vectorcall`); what stands here
   makes the tuple right away, and leaves whatever is wrong with a call to the class's own way. */

#include <Python.h>

static PyObject *
fields_of(PyObject *type)
{
    return PyDict_GetItemString(((PyTypeObject *)type)->tp_dict, "_fields"); /* borrowed */
}

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

/* Where some fields are given by name or left to their defaults. */
static PyObject *
make_by_name(PyObject *type, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *fields = fields_of(type);
    PyObject *defaults = PyDict_GetItemString(((PyTypeObject *)type)->tp_dict, "_field_defaults");
    Py_ssize_t size = fields == NULL ? -1 : PyTuple_GET_SIZE(fields), known = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (defaults == NULL || count + known > size)
        return make_its_own_way(type, args, count, names);
    PyObject *made = PyTuple_Type.tp_alloc((PyTypeObject *)type, size); /* filled with NULL */
    if (made == NULL)
        return NULL;
    Py_ssize_t used = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *value = i < count ? args[i] : NULL;
        if (value == NULL) {
            PyObject *field = PyTuple_GET_ITEM(fields, i);
            for (Py_ssize_t k = 0; k < known; k++)
                if (PyTuple_GET_ITEM(names, k) == field || PyUnicode_Compare(PyTuple_GET_ITEM(names, k), field) == 0) {
                    value = args[count + k];
                    used++;
                    break;
                }
            if (value == NULL)
                value = PyDict_GetItem(defaults, field);
            if (value == NULL)
                break;
        }
        Py_INCREF(value);
        PyTuple_SET_ITEM(made, i, value);
    }
    if (PyTuple_GET_ITEM(made, size - 1) == NULL || used < known) {
        Py_DECREF(made);
        return make_its_own_way(type, args, count, names);
    }
    return made;
}

#define MAKER(SIZE)                                                                                                    \
    static PyObject *make_##SIZE(PyObject *type, PyObject *const *args, size_t flags, PyObject *names)                 \
    {                                                                                                                  \
        Py_ssize_t count = PyVectorcall_NARGS(flags);                                                                  \
        if (names != NULL || count != SIZE)                                                                            \
            return make_by_name(type, args, count, names);                                                             \
        PyTupleObject *made = PyObject_GC_NewVar(PyTupleObject, (PyTypeObject *)type, SIZE);                           \
        if (made == NULL)                                                                                              \
            return NULL;                                                                                               \
        for (int i = 0; i < SIZE; i++) {                                                                               \
            Py_INCREF(args[i]);                                                                                        \
            made->ob_item[i] = args[i];                                                                                \
        }                                                                                                              \
        PyObject_GC_Track(made);                                                                                       \
        return (PyObject *)made;                                                                                       \
    }

MAKER(1) MAKER(2) MAKER(3) MAKER(4) MAKER(5) MAKER(6) MAKER(7) MAKER(8) MAKER(9) MAKER(10) MAKER(11) MAKER(12)

static const vectorcallfunc makers[] = {NULL,   make_1, make_2, make_3, make_4,  make_5, make_6,
                                        make_7, make_8, make_9, make_10, make_11, make_12};

/* quicken(class) -> whether it is made in one step from now on. */
static PyObject *
quicken(PyObject *module, PyObject *given)
{
    if (!PyType_Check(given))
        Py_RETURN_FALSE;
    PyTypeObject *type = (PyTypeObject *)given;
    PyObject *fields = fields_of(given);
    /* Of a tuple's layout, with nothing of its own in how it is called, made or set up. */
    if (type->tp_base != &PyTuple_Type || type->tp_basicsize != PyTuple_Type.tp_basicsize || type->tp_dictoffset != 0
        || type->tp_weaklistoffset != 0 || Py_TYPE(type) != &PyType_Type || type->tp_init != PyBaseObject_Type.tp_init
        || !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || type->tp_vectorcall != NULL || fields == NULL
        || !PyTuple_CheckExact(fields) || PyTuple_GET_SIZE(fields) < 1
        || (size_t)PyTuple_GET_SIZE(fields) >= sizeof(makers) / sizeof(makers[0]))
        Py_RETURN_FALSE;
    type->tp_vectorcall = makers[PyTuple_GET_SIZE(fields)];
    Py_RETURN_TRUE;
}

static PyMethodDef functions[] = {{"quicken", quicken, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dally.core.named_native", NULL, -1, functions};

PyMODINIT_FUNC
PyInit_dally___core___named_native(void)
{
    return PyModule_Create(&definition);
}
