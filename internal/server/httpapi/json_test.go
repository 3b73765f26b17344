package httpapi

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/server/guard"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// limits are those of a coordinator.
var limits = guard.Limits{Items: 1000, Headers: 32}

// A text within the size limit has room for millions of items, which would take gigabytes once they are decoded.
//
//nolint:paralleltest // it counts what is allocated
func TestExcessiveJSONItemsAreRefusedUndecoded(t *testing.T) {
	headers := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"%d":""`, i))
		}
		return `{"headers":{` + strings.Join(all, ",") + `}}`
	}
	many := func(item string, n int) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	for _, tc := range []struct {
		request proto.Message
		text    string
		field   string
	}{
		{&msghandlerv1.SendHalfMessagesRequest{}, `{"messages":` + many("{}", 4<<20) + `}`, "messages"},
		{&msghandlerv1.SendHalfMessagesRequest{}, `{"messages":` + many(" { } ", 2000) + `, `, "messages"},
		{&msghandlerv1.SubmitAllRequest{}, `{"producer":"\"]","ids":` + many(`""`, 1001) + `}`, "ids"},
		{&adminv1.TailMessagesRequest{}, `{"states":` + many("1", 1001) + `}`, "states"},
		{&adminv1.RetryMessagesRequest{}, `{"selection":{"names":` + many("{}", 1001) + `}}`, "selection.names"},
		{&msghandlerv1.SendHalfMessageRequest{}, `{"message":` + headers(64_001) + `}`, "headers"},
		{&msghandlerv1.SendHalfMessagesRequest{}, `{"messages":` + many(headers(641), 100) + `}`, "headers"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		refused := decodeJSON([]byte(tc.text), tc.request, limits)
		runtime.ReadMemStats(&after)
		if refused == nil || refused.Field != tc.field || proto.Size(tc.request) != 0 {
			t.Errorf("%.40s: got %v with %d bytes, want an error of %s", tc.text, refused, proto.Size(tc.request), tc.field)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
			t.Errorf("%.40s: took %d bytes", tc.text, took)
		}
	}
}

// An error names the field and quotes nothing of the request, which may hold secrets.
func TestErrorsOfJSONQuoteNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"message":{"body":"secret word"}}`: "message.body cannot be read from JSON (line 1, column 20): " +
			"bytes must be base64 in JSON",
		"{\"message\":{\"body\":\"c2Vj\nsecret\"}}": "message.body cannot be read from JSON (line 1, column 20): " +
			`a text has a line break: write \n for it, and base64 in one line (base64 -w0)`,
		"\uFEFF{}": "the request begins with a byte order mark (EF BB BF): " +
			"send UTF-8 without it",
		`{"message":{"id":{"secret":1}}}`:        "",
		`{"message":{"id":12345678}}`:            "",
		`{"message":{"headers":{"a":"b" secret`:  "",
		`{"message":{"delay":"secret"}}`:         "",
		`{"message":{"headers":{"a":12345678}}}`: "",
		`{"message":{"body":secret}}`:            "",
	} {
		refused := decodeJSON([]byte(text), &msghandlerv1.SendHalfMessageRequest{}, limits)
		if refused == nil || want != "" && refused.Error() != want {
			t.Errorf("%s: got %v, want %q", text, refused, want)
			continue
		}
		if said := refused.Error(); strings.Contains(said, "secret") || strings.Contains(said, "12345678") {
			t.Errorf("%s: the error quotes the request: %s", text, said)
		}
	}
}

func TestAFullJSONBatchIsDecoded(t *testing.T) {
	t.Parallel()
	full := &msghandlerv1.SendHalfMessagesRequest{}
	for range limits.Items {
		m := &msghandlerv1.Message{Id: "[{\",é\\", Headers: map[string]string{}, Body: []byte{1, 2}}
		for i := range limits.Headers {
			m.Headers[fmt.Sprint(i)] = "}],"
		}
		full.Messages = append(full.Messages, m)
	}
	text, err := protojson.MarshalOptions{Multiline: true}.Marshal(full)
	must.Succeed(t, err)
	got := &msghandlerv1.SendHalfMessagesRequest{}
	if refused := decodeJSON(text, got, limits); refused != nil || !proto.Equal(got, full) {
		t.Errorf("got %v", refused)
	}
}

// FuzzJSON: the walk takes everything that protojson takes, and finds an error in everything else.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"producer":"a","message":{"id":"1","headers":{"a":"b"},"delay":"1s","body":"e30="},"confirmAfter":null}`,
		`{"message":{"id":"\ud83d\ude00\u00e9\\"}}`, `{"message":{"id":"\ud800"}}`, `{"x":[{}]}`,
		`{"message":{"delay":{}}}`, ` {} x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, want := &msghandlerv1.SendHalfMessageRequest{}, &msghandlerv1.SendHalfMessageRequest{}
		refused, err := decodeJSON(text, got, limits), protojson.Unmarshal(text, want)
		if len(bytes.TrimSpace(text)) > 0 && (refused == nil) != (err == nil) {
			t.Errorf("%q: got %v; protojson says %v", text, refused, err)
		}
		if err == nil && !proto.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	})
}
