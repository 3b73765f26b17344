package callback_test

import (
	"compress/gzip"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// confirmed is an answer with the confirmations.
func confirmed(all ...string) string { return `{"confirmations":[` + strings.Join(all, ",") + `]}` }

// isNoVerdict says whether operators learn that an answer has not the form of the contract.
func isNoVerdict(failed *callback.CallError) bool {
	return cause.OfCall(failed.Error()) == cause.ProducerNoVerdict
}

// Nothing but 200 with the form of the contract is a verdict, and the error says which form was expected.
func TestMalformedHTTPAnswerIsNoVerdict(t *testing.T) {
	t.Parallel()
	const asJSON, row = "application/json", `{"id":"1","verdict":"VERDICT_COMMITTED"}`
	good := confirmed(row)
	of := func(verdict string) string { return confirmed(`{"id":"1","verdict":` + verdict + `}`) }
	twice := confirmed(`{"id":"1","verdict":"VERDICT_ROLLED_BACK","verdict":"VERDICT_COMMITTED"}`)
	for name, tc := range map[string]struct {
		contentType, body string
		// want is in the error.
		want string
	}{
		"true":                {asJSON, "true", "a bare boolean"},
		"false":               {asJSON, " false\n", "a bare boolean"},
		"text in JSON":        {asJSON, `"COMMITTED"`, "a text"},
		"number":              {asJSON, `2`, "a number"},
		"null":                {asJSON, `null`, "null"},
		"list":                {asJSON, `[` + row + `]`, "a list"},
		"plain text":          {"text/plain", "COMMITTED", `"text/plain"`},
		"page":                {"text/html", "<html>VERDICT_COMMITTED", `"text/html"`},
		"another type":        {"text/json", good, `"text/json"`},
		"no type":             {"", good, `""`},
		"another charset":     {asJSON + "; charset=utf-16", good, "utf-16"},
		"byte order mark":     {asJSON, "\ufeff" + good, "byte order mark"},
		"empty":               {asJSON, "", "empty"},
		"spaces":              {asJSON, " \n", "empty"},
		"half":                {asJSON, good[:len(good)-2], "not JSON"},
		"more behind":         {asJSON, good + good, "not JSON"},
		"another object":      {asJSON, `{"committed":true}`, "no field confirmations"},
		"another case":        {asJSON, strings.ToUpper(good), "no field confirmations"},
		"no list":             {asJSON, `{"confirmations":` + row + `}`, "no list"},
		"null for a list":     {asJSON, `{"confirmations":null}`, "no list"},
		"two lists":           {asJSON, `{"confirmations":[],"confirmations":[` + row + `]}`, "twice"},
		"list of ids":         {asJSON, confirmed(`"1"`), "no object"},
		"no verdict":          {asJSON, confirmed(`{"id":"1"}`), "no verdict"},
		"verdict true":        {asJSON, of("true"), "no text"},
		"verdict 2":           {asJSON, of("2"), "no text"},
		"id 1":                {asJSON, confirmed(`{"id":1,"verdict":"VERDICT_COMMITTED"}`), "no text"},
		"short name":          {asJSON, of(`"COMMITTED"`), `"COMMITTED"`},
		"lower case":          {asJSON, strings.ToLower(good), `"verdict_committed"`},
		"unspecified":         {asJSON, of(`"VERDICT_UNSPECIFIED"`), "no verdict"},
		"one bad of two":      {asJSON, confirmed(row, "{}"), "no id"},
		"two verdicts in one": {asJSON, twice, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := failedHTTP(t, 200, tc.contentType, tc.body)
			if failed.Code() != codes.Internal || !failed.Reached || !isNoVerdict(failed) {
				t.Errorf("got code %v, reached %t: %v", failed.Code(), failed.Reached, failed)
			}
			for _, want := range []string{tc.want, "answer with 200, Content-Type: application/json", "VERDICT_"} {
				if !strings.Contains(failed.Error(), want) {
					t.Errorf("the cause reads %q, want %q", failed, want)
				}
			}
		})
	}
}

func TestHTTPCompressedAnswerIsNoVerdict(t *testing.T) {
	t.Parallel()
	good := []byte(confirmed(`{"id":"1","verdict":"VERDICT_COMMITTED"}`))
	for what, write := range map[string]func(w http.ResponseWriter){
		"packed": func(w http.ResponseWriter) {
			packed := gzip.NewWriter(w)
			_, _ = packed.Write(good)
			_ = packed.Close()
		},
		"plain under the name of gzip": func(w http.ResponseWriter) { _, _ = w.Write(good) },
	} {
		url := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			write(w)
		})
		_, err := client(t, callback.Config{}).Confirm(t.Context(),
			halfmsg.Target{Producer: "orders", Address: url}, []string{"1"}, false)
		if err == nil || !strings.Contains(err.Error(), `its content encoding is "gzip"`) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// A status other than 200 is never a verdict, with any body. It says whether a message may be the reason.
func TestHTTPStatusDecidesReached(t *testing.T) {
	t.Parallel()
	good := confirmed(`{"id":"1","verdict":"VERDICT_COMMITTED"}`)
	for status, tc := range map[int]struct {
		code    codes.Code
		reached bool
		// want is in the error.
		want string
	}{
		201: {codes.Internal, true, "answer with 200"},
		204: {codes.Internal, true, "answer with 200"},
		304: {codes.Unimplemented, false, "redirects are not followed"},
		400: {codes.InvalidArgument, true, good},
		401: {codes.Unauthenticated, false, "callbacks.token_file"},
		403: {codes.PermissionDenied, false, "callbacks.token_file"},
		404: {codes.Unimplemented, false, "/confirm take a POST?"},
		405: {codes.Unimplemented, false, "/confirm take a POST?"},
		415: {codes.Unimplemented, false, "/confirm take a POST?"},
		408: {codes.DeadlineExceeded, false, "408 Request Timeout"},
		409: {codes.FailedPrecondition, true, good},
		413: {codes.InvalidArgument, true, "413"},
		429: {codes.ResourceExhausted, false, "429"},
		500: {codes.Internal, true, good},
		501: {codes.Unimplemented, false, "501"},
		502: {codes.Unavailable, false, "502 Bad Gateway"},
		503: {codes.Unavailable, false, "503"},
		504: {codes.Unavailable, false, "504"},
		599: {codes.Internal, true, "599"},
	} {
		body := good
		if status == 204 || status == 304 {
			body = ""
		}
		failed := failedHTTP(t, status, "application/json", body)
		if failed.Code() != tc.code || failed.Reached != tc.reached ||
			errors.Is(failed, halfmsg.ErrCallFailed) != tc.reached {
			t.Errorf("%d: got code %v, reached %t", status, failed.Code(), failed.Reached)
		}
		if !strings.Contains(failed.Error(), tc.want) || isNoVerdict(failed) != (status/100 == 2) {
			t.Errorf("%d: the cause reads %q", status, failed)
		}
	}
	if failed := failedHTTP(t, 502, "text/html", "<html>"); strings.Contains(failed.Error(), "<") {
		t.Errorf("a page is in the cause %q", failed)
	}
}

// failedHTTP returns the error of a Confirm that is answered so.
func failedHTTP(t *testing.T, status int, contentType, body string) *callback.CallError {
	t.Helper()
	c := client(t, callback.Config{Timeout: 30 * time.Second})
	to := halfmsg.Target{Producer: "orders", Address: serveHTTP(t, answering(status, contentType, body))}
	verdicts, err := c.Confirm(t.Context(), to, []string{"1"}, true)
	var failed *callback.CallError
	if verdicts != nil || !errors.As(err, &failed) {
		t.Fatalf("%d with %q: got %v, %v", status, body, verdicts, err)
	}
	return failed
}

func TestHTTPDeletionTakesAnyObject(t *testing.T) {
	t.Parallel()
	for body, ok := range map[string]bool{`{}`: true, `{"deleted":3}`: true, `true`: false, ``: false, `[]`: false} {
		url := serveHTTP(t, answering(200, "application/json", body))
		err := client(t, callback.Config{}).DeleteBusiness(t.Context(),
			halfmsg.Target{Producer: "orders", Address: url}, []string{"1"})
		if (err == nil) != ok {
			t.Errorf("%q: got %v", body, err)
		}
	}
}
