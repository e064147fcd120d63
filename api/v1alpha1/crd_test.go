package v1alpha1_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// floor is the oldest Kubernetes that Portero runs on.
var floor = version.MajorMinor(1, 33)

// readCRD reads the generated CRD as the API server's own types.
func readCRD() *apiextensions.CustomResourceDefinition {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(apiextensions.AddToScheme(scheme)).To(Succeed())
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())

	raw, err := os.ReadFile("../../config/crd/bases/portero.dev_ratelimitpolicies.yaml")
	Expect(err).NotTo(HaveOccurred())
	object, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer(), raw)
	Expect(err).NotTo(HaveOccurred())
	scheme.Default(object)
	crd := &apiextensions.CustomResourceDefinition{}
	Expect(scheme.Convert(object, crd, nil)).To(Succeed())
	crd.Status.StoredVersions = []string{"v1alpha1"} // as the API server sets them before it validates
	return crd
}

// rule is an x-kubernetes-validations rule in its place.
type rule struct {
	path *field.Path
	text string
	// cost is the API server's estimate of the rule's worst case, over all places of one object.
	cost uint64
	err  error
}

// compileRules compiles the rules of a schema and of all below it with what CEL could do at the floor.
func compileRules(schema *apiextensions.JSONSchemaProps, context *validation.CELSchemaContext, path *field.Path) []rule {
	GinkgoHelper()
	var rules []rule
	if len(schema.XValidations) > 0 {
		info, err := context.TypeInfo()
		Expect(err).NotTo(HaveOccurred(), path.String())
		results, err := cel.Compile(info.Schema, info.DeclType, celconfig.PerCallLimit,
			environment.MustBaseEnvSet(floor), cel.NewExpressionsEnvLoader())
		Expect(err).NotTo(HaveOccurred(), path.String())
		Expect(context.MaxCardinality).NotTo(BeNil(), "%s lies in a list or map without a bound", path)
		for i, result := range results {
			compiled := rule{path: path, text: schema.XValidations[i].Rule, cost: result.MaxCost * *context.MaxCardinality}
			if result.Error != nil {
				compiled.err = result.Error
			}
			rules = append(rules, compiled)
		}
	}
	for name, property := range schema.Properties {
		rules = append(rules, compileRules(&property, context.ChildPropertyContext(&property, name), path.Child(name))...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		values := schema.AdditionalProperties.Schema
		rules = append(rules, compileRules(values, context.ChildAdditionalPropertiesContext(values), path.Key("*"))...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		items := schema.Items.Schema
		rules = append(rules, compileRules(items, context.ChildItemsContext(items), path.Key("*"))...)
	}
	return rules
}

// visit calls f for a schema and all below it.
func visit(schema *apiextensions.JSONSchemaProps, path *field.Path, f func(*apiextensions.JSONSchemaProps, *field.Path)) {
	f(schema, path)
	for name, property := range schema.Properties {
		visit(&property, path.Child(name), f)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		visit(schema.AdditionalProperties.Schema, path.Key("*"), f)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		visit(schema.Items.Schema, path.Key("*"), f)
	}
}

var _ = Describe("The generated CRD", func() {
	It("passes the API server's own validation, the budget of its rules included", func(ctx SpecContext) {
		Expect(validation.ValidateCustomResourceDefinition(ctx, readCRD())).To(BeEmpty())
	})

	It("has rules that compile on the oldest Kubernetes it runs on, within the budget there", func() {
		crd := readCRD()
		schema := crd.Spec.Validation.OpenAPIV3Schema
		rules := compileRules(schema, validation.RootCELContext(schema), field.NewPath(""))
		Expect(len(rules)).To(BeNumerically(">=", 20))

		var total uint64
		for _, rule := range rules {
			Expect(rule.err).NotTo(HaveOccurred(), "%s: %s", rule.path, rule.text)
			Expect(rule.cost).To(BeNumerically("<=", validation.StaticEstimatedCostLimit), "%s: %s", rule.path, rule.text)
			total += rule.cost
		}
		Expect(total).To(BeNumerically("<=", validation.StaticEstimatedCRDCostLimit))
		AddReportEntry("cost of all rules, in parts of the budget", float64(total)/validation.StaticEstimatedCRDCostLimit)
	})

	It("would not compile at the floor with what came later", func() {
		// Guards the test above: it must see the library of the floor, not that of the linked version.
		schema := &apiextensions.JSONSchemaProps{Type: "string", XValidations: apiextensions.ValidationRules{{Rule: "lists.range(1) == [0]"}}}
		Expect(compileRules(schema, validation.RootCELContext(schema), field.NewPath(""))[0].err).To(HaveOccurred())
	})

	It("bounds every list, map, string and number of the spec, and describes every field", func() {
		spec := readCRD().Spec.Validation.OpenAPIV3Schema.Properties["spec"]
		visit(&spec, field.NewPath("spec"), func(schema *apiextensions.JSONSchemaProps, path *field.Path) {
			switch schema.Type {
			case "array":
				Expect(schema.MaxItems).NotTo(BeNil(), path.String())
				Expect(schema.XListType).NotTo(BeNil(), path.String())
			case "string":
				Expect(schema.MaxLength != nil || len(schema.Enum) > 0).To(BeTrue(), path.String())
			case "integer":
				Expect(schema.Minimum).NotTo(BeNil(), path.String())
				Expect(schema.Maximum).NotTo(BeNil(), path.String())
			case "object":
				Expect(schema.AdditionalProperties == nil || schema.MaxProperties != nil).To(BeTrue(), path.String())
				for name, property := range schema.Properties {
					Expect(property.Description).To(HavePrefix(name+" "), path.Child(name).String())
				}
			default:
				Fail(path.String() + " has the type " + schema.Type)
			}
		})
	})
})
