package httpapi

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/test/must"
)

// TestProblemsNeedAnotherRequest: a request that HTTP itself refuses is refused again. Only one that was too slow may
// be quicker the next time.
func TestProblemsNeedAnotherRequest(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/reference/http.md")
	must.Succeed(t, err)
	for reason, kind := range problemTable {
		f, httpStatus := failureOf(problemf(reason, "text"))
		if f.Reason != reason || f.Code != answers[kind.code].name || httpStatus != kind.http || f.RetryDelay != "" {
			t.Errorf("%s: HTTP %d %+v", reason, httpStatus, f)
		}
		switch f.Code {
		case "invalid_argument", "unimplemented", "permission_denied":
		default:
			if reason != "REQUEST_TOO_SLOW" {
				t.Errorf("clients repeat a call after %s, and %s will not change", f.Code, reason)
			}
		}
		if !hasRow(string(page), httpStatus, reason) {
			t.Errorf("the page has no row for %d %s", httpStatus, reason)
		}
	}
}

func hasRow(page string, httpStatus int, reason string) bool {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, fmt.Sprintf("| %d | ", httpStatus)) && strings.Contains(line, "`"+reason+"`") {
			return true
		}
	}
	return false
}

// TestEveryCodeHasAName: the Connect protocol and plain HTTP say what gRPC says.
func TestEveryCodeHasAName(t *testing.T) {
	t.Parallel()
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		f, httpStatus := failureOf(status.Error(code, "text"))
		var named codes.Code
		if err := named.UnmarshalJSON([]byte(`"` + strings.ToUpper(f.Code) + `"`)); code != codes.Canceled &&
			(err != nil || named != code) {
			t.Errorf("%v is called %s: %v", code, f.Code, err)
		}
		if httpStatus < http.StatusBadRequest {
			t.Errorf("%v is HTTP %d", code, httpStatus)
		}
	}
}
