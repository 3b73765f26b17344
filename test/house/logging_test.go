package house

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A log store gives an attribute the type of its first value, and refuses lines with another type.
func TestLogAttributesHaveOneType(t *testing.T) {
	t.Parallel()
	uses := map[string]map[string][]string{} // by key, by type: where
	for _, a := range logAttributes(t) {
		if why, unfit := strings.CutPrefix(a.kind, "!"); unfit {
			t.Errorf("%s: the log attribute %q is %s", a.at, a.key, why)
			continue
		}
		if uses[a.key] == nil {
			uses[a.key] = map[string][]string{}
		}
		uses[a.key][a.kind] = append(uses[a.key][a.kind], a.at)
	}
	const few = 40 // there are about 80 keys: fewer mean that the test has lost sight of them
	if len(uses) < few {
		t.Fatalf("found only %d log attributes: %v", len(uses), slices.Sorted(maps.Keys(uses)))
	}
	for key, kinds := range uses {
		if len(kinds) > 1 {
			t.Errorf("the log attribute %q has several types, and in JSON a log store takes only one: %v", key, kinds)
		}
	}
}

// docs/reference/logs.md promises one shape for all lines.
func TestLogAttributesFollowTheShape(t *testing.T) {
	t.Parallel()
	page := readTop(t, "docs/reference/logs.md")
	for _, a := range logAttributes(t) {
		if fault := faultOfKey(a); fault != "" {
			t.Errorf("%s: the log attribute %q %s; see docs/reference/logs.md", a.at, a.key, fault)
		}
		if !strings.HasPrefix(a.at, "examples/") && !strings.Contains(page, "`"+a.key+"`") {
			t.Errorf("%s: docs/reference/logs.md lacks the key `%s`", a.at, a.key)
		}
	}
	for _, key := range collectorKeys {
		if !strings.Contains(page, "`"+key+"`") {
			t.Errorf("docs/reference/logs.md lacks the reserved key `%s`", key)
		}
	}
}

func TestKeysOutsideTheShapeAreFaults(t *testing.T) {
	t.Parallel()
	for _, a := range []attribute{
		{"error", "text", ""},
		{"host", "text", ""},
		{"id", "text", ""},
		{"message", "text", ""},
		{"took", "duration", ""},
		{"took_ms", "duration", ""},
		{"took_ms", "text", ""},
		{"took_seconds", "number", ""},
		{"tookMS", "number", ""},
		{"trace.id", "text", ""},
		{"message_id", "number", ""},
		{"message_ids", "text", ""},
	} {
		if faultOfKey(a) == "" {
			t.Errorf("the log attribute %q of %s passes", a.key, a.kind)
		}
	}
	for _, a := range []attribute{{"took_ms", "number", ""}, {"message_id", "text", ""}, {"trace_id", "text", ""}} {
		if fault := faultOfKey(a); fault != "" {
			t.Errorf("the log attribute %q of %s %s", a.key, a.kind, fault)
		}
	}
}

// collectorKeys are the keys that collectors and log stores fill or interpret: an object of the Elastic Common Schema,
// a reserved attribute of Datadog, a special field of Google Cloud, a label of Loki and Kubernetes, a field of GELF.
// trace_id is absent: collectors give the key the meaning that the lines have.
var collectorKeys = []string{
	"agent", "app", "client", "cloud", "cluster", "container", "date", "dd", "ddsource", "ddtags", "destination", "device",
	"dns", "ecs", "email", "env", "error", "event", "facility", "file", "filename", "group", "hash", "host", "hostname",
	"http", "httpRequest", "id", "index", "instance", "interface", "job", "kubernetes", "labels", "level", "log", "logger",
	"message", "msg", "namespace", "network", "node", "observer", "operation", "orchestrator", "organization", "package",
	"pod", "process", "registry", "related", "resource", "rule", "server", "service", "severity", "source", "sourcetype",
	"span", "status", "stream", "syslog", "tags", "threat", "time", "timestamp", "tls", "trace", "transaction", "url",
	"user", "user_agent", "usr", "vulnerability",
}

var (
	plainKey = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	// otherUnits are endings for units of time other than the milliseconds of all durations.
	otherUnits = regexp.MustCompile(`_(ns|us|s|sec|secs|seconds|minutes|hours|nanos|micros|millis|duration)$`)
)

// faultOfKey says how an attribute breaks the shape of log lines; empty for a good attribute.
func faultOfKey(a attribute) string {
	switch {
	case !plainKey.MatchString(a.key):
		return "is not in lower case with underscores"
	case slices.Contains(collectorKeys, a.key):
		return "has a key that collectors own"
	case a.kind == "duration":
		return "is a time.Duration, which JSON prints in nanoseconds: log .Milliseconds() under a key that ends in _ms"
	case strings.HasSuffix(a.key, "_ms") && a.kind != "number":
		return "ends in _ms and is no number"
	case otherUnits.MatchString(a.key):
		return "has another unit of time than _ms"
	case a.key == "message_id" && a.kind != "text", a.key == "message_ids" && a.kind != "list of text":
		return "is not the text PRODUCER/ID, or a list of such texts"
	}
	return ""
}

// attribute is one use of a log attribute: its key, the JSON type of its value, and the place. A kind that begins
// with ! says why the value does not belong in a log.
type attribute struct{ key, kind, at string }

// logAttributes finds the attributes that shipped code passes to slog.
func logAttributes(t *testing.T) (found []attribute) {
	t.Helper()
	c := typeCheck(t)
	for path, sources := range c.sources {
		for _, f := range sources {
			ast.Inspect(f.tree, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					found = append(found, attributesOf(f, c.infos[path], call)...)
				}
				return true
			})
		}
	}
	return found
}

// pairsFrom says from which argument on the functions of log/slog take keys and values; -1: the first is the key of
// one value.
var pairsFrom = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2,
	"Log": 3, "With": 0, "Any": -1, "String": -1, "Int": -1, "Int64": -1, "Uint64": -1, "Float64": -1, "Bool": -1,
	"Time":     -1,
	"Duration": -1,
}

// attributesOf are the attributes of one call, if the call is a call of log/slog.
func attributesOf(f file, info *types.Info, call *ast.CallExpr) (found []attribute) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	function, ok := info.Uses[selector.Sel].(*types.Func)
	if !ok || function.Pkg() == nil || function.Pkg().Path() != "log/slog" {
		return nil
	}
	from, ok := pairsFrom[function.Name()]
	if !ok {
		return nil
	}
	if call.Ellipsis.IsValid() && from >= 0 {
		at := fmt.Sprintf("%s:%d", f.path, f.line(call.Pos()))
		return []attribute{{"?", "!in a slice, whose keys no test sees: use LogAttrs", at}}
	}
	for i := max(from, 0); i+1 < len(call.Args); {
		if attr, ok := info.TypeOf(call.Args[i]).(*types.Named); ok && attr.Obj().Name() == "Attr" {
			i++ // an Attr comes from another call, which is checked by itself
			continue
		}
		at := fmt.Sprintf("%s:%d", f.path, f.line(call.Args[i].Pos()))
		key := info.Types[call.Args[i]].Value
		if key == nil || key.Kind() != constant.String {
			found = append(found, attribute{"?", "!named by no constant, so that no search finds it", at})
		} else {
			found = append(found, attribute{constant.StringVal(key), kindOf(info.TypeOf(call.Args[i+1])), at})
		}
		i += 2
	}
	return found
}

// kindOf is the kind of a type's values in a line of JSON.
func kindOf(of types.Type) string {
	if of == nil {
		return "!of an unknown type"
	}
	switch name := of.String(); {
	case name == "time.Duration" || name == "time.Time" || name == "error":
		return map[string]string{"time.Duration": "duration", "time.Time": "text", "error": "text"}[name]
	case has(of, "LogValue"), has(of, "Error"), has(of, "MarshalText"):
		return "text"
	}
	switch underlying := of.Underlying().(type) {
	case *types.Basic:
		switch {
		case underlying.Info()&types.IsString != 0:
			return "text"
		case has(of, "String"):
			return fmt.Sprintf("!a %s, which is a name in a text log and a number in a JSON log: give it LogValue", of)
		case underlying.Info()&types.IsNumeric != 0:
			return "number"
		case underlying.Info()&types.IsBoolean != 0:
			return "boolean"
		}
	case *types.Slice:
		if element := kindOf(underlying.Elem()); !strings.HasPrefix(element, "!") && !has(underlying.Elem(), "LogValue") {
			return "list of " + element
		}
		return fmt.Sprintf("!a %s, whose elements JSON spells in another way than text: make texts of them", of)
	}
	return fmt.Sprintf("!a %s, which JSON spells in another way than text: give it LogValue, or make a text of it", of)
}

// has says whether values of a type have a method.
func has(of types.Type, method string) bool {
	object, _, _ := types.LookupFieldOrMethod(of, false, nil, method)
	_, is := object.(*types.Func)
	return is
}
