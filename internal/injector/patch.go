package injector

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Operation is one step of a JSON patch (RFC 6902).
type Operation struct {
	// Op is add, remove or replace.
	Op string
	// Path is the JSON pointer of what it changes.
	Path string
	// Value is what add and replace write.
	Value any
}

// MarshalJSON writes the members that the operation has.
func (o Operation) MarshalJSON() ([]byte, error) {
	m := object{"op": o.Op, "path": o.Path}
	if o.Op != "remove" {
		m["value"] = o.Value
	}
	return json.Marshal(m)
}

// diff returns the steps that turn before into after.
func diff(path string, before, after any) []Operation {
	switch b := before.(type) {
	case object:
		if a, ok := after.(object); ok {
			return diffObjects(path, b, a)
		}
	case []any:
		if a, ok := after.([]any); ok {
			return diffLists(path, b, a)
		}
	}
	if reflect.DeepEqual(before, after) {
		return nil
	}
	return []Operation{{Op: "replace", Path: path, Value: after}}
}

func diffObjects(path string, before, after object) []Operation {
	keys := slices.Sorted(maps.Keys(before))
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[k]; !ok {
			keys = append(keys, k)
		}
	}
	var ops []Operation
	for _, k := range keys {
		p := path + "/" + escape(k)
		b, had := before[k]
		a, has := after[k]
		switch {
		case !has:
			ops = append(ops, Operation{Op: "remove", Path: p})
		case !had:
			ops = append(ops, Operation{Op: "add", Path: p, Value: a})
		default:
			ops = append(ops, diff(p, b, a)...)
		}
	}
	return ops
}

// diffLists pairs entries by name where they have one, so that an entry put in front shows as one addition and not as a
// change of all that follow.
func diffLists(path string, before, after []any) []Operation {
	var ops []Operation
	i, j := 0, 0
	for i < len(before) || j < len(after) {
		p := path + "/" + strconv.Itoa(j)
		switch {
		case i == len(before):
			ops = append(ops, Operation{Op: "add", Path: p, Value: after[j]})
			j++
		case j == len(after):
			ops = append(ops, Operation{Op: "remove", Path: p})
			i++
		case same(before[i], after[j]):
			ops = append(ops, diff(p, before[i], after[j])...)
			i, j = i+1, j+1
		case slices.ContainsFunc(after[j:], func(a any) bool { return same(before[i], a) }):
			ops = append(ops, Operation{Op: "add", Path: p, Value: after[j]})
			j++
		default:
			ops = append(ops, Operation{Op: "remove", Path: p})
			i++
		}
	}
	return ops
}

// same tells whether two list entries are states of one thing.
func same(before, after any) bool {
	b, ok := before.(object)
	if !ok || b["name"] == nil {
		return reflect.DeepEqual(before, after)
	}
	a, _ := after.(object)
	return reflect.DeepEqual(b["name"], a["name"])
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// escape writes a key as a step of a JSON pointer.
func escape(key string) string { return escaper.Replace(key) }
