package expression

import (
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"
)

// environment is what expressions may use. It is made when first asked for: most policies have no expression.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	return cel.NewCustomEnv(
		cel.StdLib(cel.StdLibSubset(&env.LibrarySubset{ExcludeFunctions: excluded()})),
		cel.OptionalTypes(),
		ext.Strings(ext.StringsVersion(stringsVersion)),
		ext.Network(ext.NetworkVersion(networkVersion)),
		cel.CustomTypeProvider(provider{registry}),
		cel.Variable(variable, cel.ObjectType(requestType)),
		cel.ParserExpressionSizeLimit(MaxLength),
		cel.ExpressionNodeLimit(maxNodes),
		cel.ASTValidators(cel.ValidateHomogeneousAggregateLiterals(), cel.ValidateComprehensionNestingLimit(2)),
	)
})

// Versions are pinned: what an expression means must not change with the library.
const (
	stringsVersion = 5
	networkVersion = 1
)

// excluded are the functions on time: without a clock they say nothing, and time zones are files of the machine.
func excluded() []*env.Function {
	var functions []*env.Function
	for _, name := range []string{
		"timestamp", "duration", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours",
		"getMilliseconds", "getMinutes", "getMonth", "getSeconds",
	} {
		functions = append(functions, env.NewFunction(name))
	}
	return functions
}

// sizes tells the estimate how large a request's values can be. All of a request's head has at most 64 KiB.
type sizes struct{}

// Values that the estimate counts on. What a request has beyond them, the limit on what is counted cuts off.
const (
	sizeOfName    = 64
	sizeOfMethod  = 16
	sizeOfHost    = 255
	sizeOfAddress = 45
	namesInMap    = 64
	valuesInList  = 4
)

// EstimateSize implements cost.Estimator.
func (sizes) EstimateSize(element cost.AstNode) *cost.SizeEstimate {
	path := element.Path()
	if len(path) < 2 || path[0] != variable {
		return nil
	}
	most := uint64(MaxValue)
	switch path[len(path)-1] {
	case "method":
		if most = sizeOfMethod; path[1] == "grpc" {
			most = sizeOfHost
		}
	case "host", "workload", "service":
		most = sizeOfHost
	case "clientIP", "portName":
		most = sizeOfAddress
	case "headers", "cookies", "claims", "query":
		most = namesInMap
	case "@keys":
		most = sizeOfName
	case "@values":
		if path[1] == "query" {
			most = valuesInList
		}
	}
	estimate := cost.RangedSizeEstimate(0, most)
	return &estimate
}

// EstimateCallCost implements cost.Estimator: what CEL says of its functions holds.
func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}
