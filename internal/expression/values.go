package expression

import (
	"maps"
	"reflect"
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// query is the collection whose values are lists.
const query = Claims + 1

// mapping is a collection as a map of CEL. One value is found without the rest, which is what most expressions ask for.
type mapping struct {
	request    Request
	collection Collection
}

var _ traits.Mapper = mapping{}

// Find implements traits.Mapper.
func (m mapping) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), false
	}
	if m.collection == query {
		list, ok := m.request.Query()[string(name)]
		if !ok {
			return nil, false
		}
		for _, value := range list {
			if len(value) > MaxValue {
				return types.WrapErr(errTooLong), false
			}
		}
		return types.NewStringList(types.DefaultTypeAdapter, list), true
	}
	value, ok := m.request.Value(m.collection, string(name))
	switch {
	case !ok:
		return nil, false
	case len(value) > MaxValue:
		return types.WrapErr(errTooLong), false
	}
	return types.String(value), true
}

// Get implements traits.Indexer.
func (m mapping) Get(key ref.Val) ref.Val {
	value, ok := m.Find(key)
	switch {
	case value != nil:
		return value
	case !ok:
		return types.NewErr("no such key: %v", key.Value())
	}
	return value
}

// Contains implements traits.Container. It looks at no value, so one of any length is there.
func (m mapping) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key)
	}
	if m.collection == query {
		_, ok = m.request.Query()[string(name)]
	} else {
		_, ok = m.request.Value(m.collection, string(name))
	}
	return types.Bool(ok)
}

// all is the whole map.
func (m mapping) all() traits.Mapper {
	if m.collection == query {
		lists := m.request.Query()
		found := make(map[ref.Val]ref.Val, len(lists))
		for name, list := range lists {
			found[types.String(name)] = types.NewStringList(types.DefaultTypeAdapter, list)
		}
		return types.NewRefValMap(types.DefaultTypeAdapter, found)
	}
	return types.NewStringStringMap(types.DefaultTypeAdapter, m.request.Values(m.collection))
}

// Iterator implements traits.Iterable. The names come sorted: in the order of a map of Go, which is another each time, a key
// built from them would be another bucket for the same request.
func (m mapping) Iterator() traits.Iterator {
	var names []string
	if m.collection == query {
		names = slices.Sorted(maps.Keys(m.request.Query()))
	} else {
		names = slices.Sorted(maps.Keys(m.request.Values(m.collection)))
	}
	return types.NewStringList(types.DefaultTypeAdapter, names).Iterator()
}

// Size implements traits.Sizer.
func (m mapping) Size() ref.Val {
	if m.collection == query {
		return types.Int(len(m.request.Query()))
	}
	return types.Int(len(m.request.Values(m.collection)))
}

// ConvertToNative implements ref.Val.
func (m mapping) ConvertToNative(to reflect.Type) (any, error) { return m.all().ConvertToNative(to) }

// ConvertToType implements ref.Val.
func (m mapping) ConvertToType(to ref.Type) ref.Val { return m.all().ConvertToType(to) }

// Equal implements ref.Val.
func (m mapping) Equal(other ref.Val) ref.Val { return m.all().Equal(other) }

// Type implements ref.Val.
func (m mapping) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m mapping) Value() any { return m.all().Value() }
