package pages

import (
	"cmp"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// auditFilter selects records of the audit trail by the query of the page.
type auditFilter struct {
	Result, By, Action, Since string
}

// Query is the filter as a part of an address.
func (f auditFilter) Query() string {
	values := url.Values{}
	for key, value := range map[string]string{
		"result": f.Result, "by": f.By, "action": f.Action, "since": f.Since,
	} {
		if value != "" {
			values.Set(key, value)
		}
	}
	return values.Encode()
}

// Narrow says whether the filter has more than a result.
func (f auditFilter) Narrow() bool { return f.By != "" || f.Action != "" || f.Since != "" }

// auditTab leads to the records with a result; empty: with any.
type auditTab struct{ Result, Text, Link string }

// auditData is the data of the audit page.
type auditData struct {
	Filter      auditFilter
	Tabs        []auditTab
	Records     []auditRecord
	Next, First string
	Problem     string
}

// auditRecord is a record, as the page words it.
type auditRecord struct {
	*adminv1.AuditRecord
	// Done is the action: a refused method by its last part.
	Done string
	// Things are what the record counts.
	Things string
	// More is how many of them are not named.
	More int64
}

// audit lists what operators changed, and which calls were refused.
func (p *Pages) audit(r *http.Request) answer {
	f := auditFilter{
		Result: r.FormValue("result"), By: strings.TrimSpace(r.FormValue("by")),
		Action: strings.TrimSpace(r.FormValue("action")), Since: strings.TrimSpace(r.FormValue("since")),
	}
	data := auditData{Filter: f}
	for _, tab := range []auditTab{
		{"", "all", ""}, {"begun", "begun", ""}, {"done", "done", ""}, {"refused", "refused", ""}, {"failed", "failed", ""},
	} {
		of := f
		of.Result = tab.Result
		tab.Link = "/audit?" + of.Query()
		data.Tabs = append(data.Tabs, tab)
	}
	if r.FormValue("after") != "" {
		data.First = "/audit?" + f.Query()
	}
	a := answer{page: "audit", title: "Audit"}
	if err := p.fillAudit(r, &data); err != nil {
		a.status, data.Problem = statusOf(err), err.Error()
	}
	a.data = data
	return a
}

// fillAudit reads the page's records.
func (p *Pages) fillAudit(r *http.Request, data *auditData) error {
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return errNotOpen
	}
	f := data.Filter
	result, known := adminv1.AuditResult_value["AUDIT_RESULT_"+strings.ToUpper(f.Result)]
	if !known && f.Result != "" {
		return RefusedError{Status: http.StatusBadRequest, Text: "choose begun, done, refused or failed"}
	}
	now := time.Now()
	since, _, err := operate.ParseRange(f.Since, "", now)
	if err != nil {
		return RefusedError{Status: http.StatusBadRequest, Text: howWritten(err).Error()}
	}
	request := &adminv1.ListAuditRequest{
		ActorContains: f.By, ActionContains: f.Action, Result: adminv1.AuditResult(result),
		PageSize: pageSize, PageToken: r.FormValue("after"),
	}
	if !since.IsZero() {
		request.MaxAge = durationpb.New(now.Sub(since))
	}
	page, err := admin.ListAudit(r.Context(), request)
	if err != nil {
		return err
	}
	for _, record := range page.GetRecords() {
		data.Records = append(data.Records, auditRecord{
			record, path.Base(cmp.Or(operate.Word(record.GetAction()), record.GetMethod())), thingsOf(record),
			max(0, record.GetCount()-int64(len(record.GetNames()))),
		})
	}
	if token := page.GetNextPageToken(); token != "" {
		values := url.Values{"after": {token}}
		data.Next = "/audit?" + strings.TrimPrefix(f.Query()+"&"+values.Encode(), "&")
	}
	return nil
}

// thingsOf says what a record counts: keys of the configuration, tokens, dead letters or messages.
func thingsOf(r *adminv1.AuditRecord) string {
	things := "messages"
	switch r.GetAction() {
	case adminv1.AuditAction_AUDIT_ACTION_RELOAD:
		things = "keys"
	case adminv1.AuditAction_AUDIT_ACTION_TOKEN:
		things = "tokens"
	case adminv1.AuditAction_AUDIT_ACTION_ASK_PRODUCER:
		things = "ids"
	case adminv1.AuditAction_AUDIT_ACTION_REPLAY_DEAD_LETTERS, adminv1.AuditAction_AUDIT_ACTION_DISCARD_DEAD_LETTERS:
		things = "dead letters"
	default:
	}
	if r.GetCount() == 1 {
		return strings.TrimSuffix(things, "s")
	}
	return things
}
