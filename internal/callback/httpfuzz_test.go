package callback

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// What is read from an answer is what protobuf's own reader of JSON finds there. Ours reads less.
func FuzzReadConfirmations(f *testing.F) {
	for _, body := range []string{
		`{"confirmations":[{"id":"1","verdict":"VERDICT_COMMITTED"},{"verdict":"VERDICT_UNKNOWN","id":"2","x":[{}]}]}`,
		`{"x":{"confirmations":[{"id":"1","verdict":"VERDICT_COMMITTED"}]},"confirmations":[]}`,
		`{"confirmations":[{"id":"1","id":"2","verdict":"VERDICT_ROLLED_BACK"}]}`,
		`{"confirmations":[{"id":"\u0031","verdict":"VERDICT\u005fCOMMITTED"}]}`,
		`{"confirmations":[{"id":1,"verdict":2}]}`, `{"confirmations":null}`, `[]`, `true`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) || formOf(body) != "an object" {
			return // checkJSON lets it not pass
		}
		got, err := readConfirmations(body)
		want := &msghandlerv1.ConfirmResponse{}
		if err != nil || (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, want) != nil {
			return
		}
		if !proto.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", body, got, want)
		}
	})
}
