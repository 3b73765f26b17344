package server_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/must"
)

// FuzzCompressed sends bodies in any encoding, as JSON, in Connect's protocol and to a stream. A request in another
// encoding than identity is refused unread, with any body.
func FuzzCompressed(f *testing.F) {
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	for range 16 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			f.Fatal(err)
		}
	}
	must.Succeed(f, w.Close())
	f.Add("gzip", "application/json", bomb.Bytes())
	f.Add("GZIP", "application/proto", bomb.Bytes())
	f.Add("identity, gzip", "application/json", []byte("{}"))
	f.Add("br", "application/connect+json", []byte{1, 0, 0, 0, 2, '{', '}'})
	f.Add("identity", "application/connect+json", []byte{1, 0, 0, 0, 2, '{', '}'})
	f.Add("", "application/json", []byte(`{"producer":"orders","id":"1"}`))
	h := open(f)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	f.Cleanup(client.CloseIdleConnections)
	f.Fuzz(func(t *testing.T, encoding, contentType string, body []byte) {
		if strings.ContainsFunc(encoding+contentType, func(r rune) bool { return r < ' ' || r > '~' }) {
			return // no header can hold it
		}
		got := do(t, client, h.url()+sendHalf, body, func(r *http.Request) {
			r.Header.Set("Content-Type", contentType)
			r.Header.Set("Content-Encoding", encoding)
		})
		encoding = strings.TrimSpace(encoding)
		if encoding != "" && encoding != "identity" && (got.status < 400 || got.status == http.StatusBadRequest) {
			t.Errorf("%q as %q: got %v", encoding, contentType, got)
		}
	})
}
