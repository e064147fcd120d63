package expression

import (
	"errors"
	"fmt"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// variable is the only one.
const variable = "request"

// Attribute is a single value of a request.
type Attribute uint8

// Attributes of a request.
const (
	Method Attribute = iota
	Path
	Host
	ClientIP
	PortName
	Workload
	GRPCService
	GRPCMethod
)

// Collection is a group of values of a request, each with a name.
type Collection uint8

// Collections of a request.
const (
	Headers Collection = iota
	Cookies
	Claims
)

// Request is a request as expressions see it. Its methods are asked only for what an expression reads, one after another.
type Request interface {
	// Text gives a single value; false when the request lacks it.
	Text(Attribute) (string, bool)
	// Port is the number of the protected port.
	Port() uint16
	// Value gives one value of a collection, by its name as Values spells it; false when the request lacks it.
	Value(Collection, string) (string, bool)
	// Values gives all of a collection.
	Values(Collection) map[string]string
	// Query gives all values of all query parameters, in their order.
	Query() map[string][]string
}

// Names of the types, as messages tell them.
const (
	requestType = "Request"
	callType    = "GRPC"
)

// call is a request seen as a call of gRPC.
type call struct{ Request }

var texts = types.NewMapType(types.StringType, types.StringType)

// fields are the fields of the types.
var fields = map[string]map[string]*types.FieldType{
	requestType: {
		"method":   text("request.method", Method),
		"path":     text("request.path", Path),
		"host":     text("request.host", Host),
		"clientIP": text("request.clientIP", ClientIP),
		"portName": text("request.portName", PortName),
		"workload": text("request.workload", Workload),
		"port":     field(types.IntType, always, func(r Request) (any, error) { return types.Int(r.Port()), nil }),
		"headers":  collection(texts, Headers),
		"cookies":  collection(texts, Cookies),
		"claims":   collection(texts, Claims),
		"query":    collection(types.NewMapType(types.StringType, types.NewListType(types.StringType)), query),
		"grpc": field(types.NewObjectType(callType), isCall, func(r Request) (any, error) {
			if !isCall(r) {
				return nil, errMissing("request.grpc")
			}
			return call{r}, nil
		}),
	},
	callType: {
		"service": text("request.grpc.service", GRPCService),
		"method":  text("request.grpc.method", GRPCMethod),
	},
}

func always(Request) bool { return true }

func isCall(r Request) bool {
	_, ok := r.Text(GRPCService)
	return ok
}

func errMissing(name string) error {
	return fmt.Errorf("the request lacks %s: ask has(%s) first", name, name)
}

var errTooLong = fmt.Errorf("a value has more than %d bytes", MaxValue)

func field(t *types.Type, isSet func(Request) bool, get func(Request) (any, error)) *types.FieldType {
	return &types.FieldType{
		Type: t,
		IsSet: func(target any) bool {
			r, ok := target.(Request)
			return ok && isSet(r)
		},
		GetFrom: func(target any) (any, error) {
			r, ok := target.(Request)
			if !ok {
				return nil, errors.New("is no request")
			}
			return get(r)
		},
	}
}

func text(name string, attribute Attribute) *types.FieldType {
	return field(types.StringType, func(r Request) bool {
		_, ok := r.Text(attribute)
		return ok
	}, func(r Request) (any, error) {
		value, ok := r.Text(attribute)
		switch {
		case !ok:
			return nil, errMissing(name)
		case len(value) > MaxValue:
			return nil, errTooLong
		}
		return types.String(value), nil
	})
}

func collection(t *types.Type, c Collection) *types.FieldType {
	return field(t, always, func(r Request) (any, error) { return mapping{r, c}, nil })
}

// provider knows the types of requests and no others: expressions build no messages.
type provider struct{ types.Provider }

// FindStructType implements types.Provider.
func (p provider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := fields[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return nil, false
}

// FindStructFieldNames implements types.Provider.
func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	known, ok := fields[name]
	var names []string
	for name := range known {
		names = append(names, name)
	}
	return names, ok
}

// FindStructFieldType implements types.Provider.
func (p provider) FindStructFieldType(name, fieldName string) (*types.FieldType, bool) {
	found, ok := fields[name][fieldName]
	return found, ok
}

// NewValue implements types.Provider.
func (p provider) NewValue(name string, _ map[string]ref.Val) ref.Val {
	return types.NewErr("a value of type %s can't be made", name)
}
