package injector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// object is a JSON object. Numbers in it are json.Number, so that none changes its digits on the way through.
type object = map[string]any

func decode(raw []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		return nil, fmt.Errorf("decode pod: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decode pod: something follows the object")
	}
	if o == nil {
		return nil, errors.New("decode pod: null is no object")
	}
	return o, nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode pod: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// toObject turns a Go value of ours into a document.
func toObject(v any) (object, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return decode(raw)
}

// field returns the object under key, or nil, which reads as empty.
func field(o object, key string) object {
	f, _ := o[key].(object)
	return f
}

// ensure returns the object under key and makes it where there is none.
func ensure(o object, key string) object {
	if f := field(o, key); f != nil {
		return f
	}
	f := object{}
	o[key] = f
	return f
}

func items(o object, key string) []any {
	l, _ := o[key].([]any)
	return l
}

// indexOf finds the entry of that name, or -1.
func indexOf(list []any, name string) int {
	return slices.IndexFunc(list, func(e any) bool {
		o, _ := e.(object)
		return o["name"] == name
	})
}

// put writes an entry in the place of the one with its name; where there is none, at the front or the end.
func put(o object, key string, entry object, front bool) {
	list := items(o, key)
	name, _ := entry["name"].(string)
	switch i := indexOf(list, name); {
	case i >= 0:
		list[i] = entry
	case front:
		list = slices.Insert(list, 0, any(entry))
	default:
		list = append(list, entry)
	}
	o[key] = list
}

// drop removes the entry of that name, and the list with its last entry.
func drop(o object, key, name string) {
	list := items(o, key)
	i := indexOf(list, name)
	if i < 0 {
		return
	}
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(o, key)
		return
	}
	o[key] = list
}
