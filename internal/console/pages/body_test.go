package pages

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/must"
)

func TestJSONLayoutIsTheLibrarys(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{}`, `[]`, `""`, `null`, `-1.5e3`, `[{},[],[[]],{"a":{}}]`, `{"a":1,"b":[true,false,null],"c":{"d":"e"}}`,
		`{"{[,:]}":"a\"}\\","\\":"\\\"[","ü":"\u007b, :"}`, " {\r\n\t\"a b\" : [ 1 , { } , [\n] ] }", `[ "  two  spaces " ]`,
		`[` + strings.Repeat(`{"id":[1,2]},`, 100) + `0]`,
	} {
		var want bytes.Buffer
		must.Succeed(t, json.Indent(&want, []byte(body), "", "  "))
		if got := indented([]byte(body)); got != want.String()[:min(len(got), want.Len())] ||
			len(got) < min(want.Len(), maxPreview) {
			t.Errorf("%.60q is laid out as\n%.600s\nwant\n%.600s", body, got, &want)
		}
	}
}

// The indentation of a deep body grows with the square of its depth. This test is not parallel because it counts all
// allocations.
func TestDeepBodyCostsOnlyShownPart(t *testing.T) {
	const depth = 9_999 // encoding/json takes no more than 10,000
	body := []byte(strings.Repeat("[", depth) + strings.Repeat("0,", 5_000) + "0" + strings.Repeat("]", depth))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := previewOf(body, "")
	runtime.ReadMemStats(&after)
	if got.As != "json" || !got.Cut || !strings.HasPrefix(got.Text, "[\n  [\n    [\n") {
		t.Errorf("shown as %s, cut %t: %.40q", got.As, got.Cut, got.Text)
	}
	// Most allocations are from the JSON check, which remembers each open bracket.
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 4<<20 {
		t.Errorf("%d bytes of JSON cost %d of memory", len(body), spent)
	}
}
