package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/audit"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counts are the metrics of a test.
type counts struct {
	refused [4]atomic.Int64
	dropped atomic.Int64
}

var kinds = []audit.Refusal{audit.ByIdentity, audit.ByRole, audit.ByProducer, audit.ByPolicy}

func (c *counts) RefusedCalls(kind audit.Refusal, calls int64) {
	c.refused[slices.Index(kinds, kind)].Add(calls)
}

func (c *counts) AuditDropped(records int) { c.dropped.Add(int64(records)) }

// trail is a Trail with its log, as a coordinator has it with log.level error.
type trail struct {
	*audit.Trail
	counts counts
	log    servers.Log
}

func newTrail(t *testing.T, keep int) *trail {
	t.Helper()
	a := &trail{}
	options := &slog.HandlerOptions{Level: slog.LevelError, ReplaceAttr: audit.LevelName}
	a.Trail = audit.New(audit.Config{
		Logger: slog.New(slog.NewTextHandler(&a.log, options)), Instance: "host-1", Metrics: &a.counts, Keep: keep,
	})
	t.Cleanup(func() { a.close(t) })
	return a
}

// close also tells a test that all is stored.
func (a *trail) close(t *testing.T) {
	t.Helper()
	if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// lines are the log's lines about records.
func (a *trail) lines() []string {
	return slices.DeleteFunc(strings.Split(a.log.String(), "\n"), func(line string) bool {
		return !strings.Contains(line, "level=AUDIT")
	})
}

func store(t *testing.T, url string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(t.Context(), redisstore.Config{
		URL: url, Prefix: "msghandler", Retention: time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// list returns all kept records that match.
func (a *trail) list(t *testing.T, q audit.Query) (all []audit.Record) {
	t.Helper()
	q.Limit = 7
	for {
		page, err := a.List(t.Context(), q)
		must.Succeed(t, err)
		if all = append(all, page.Records...); page.Next == "" {
			return all
		}
		q.Token = page.Next
	}
}

func refusal(from string) audit.Record {
	return audit.Record{
		By: "dns:orders.shop", Kind: access.Certificate, From: from, Via: audit.GRPC, Action: "/Admin/DiscardMessages",
		Result: audit.Refused, Refusal: audit.ByRole, Cause: "its role is viewer",
	}
}

func TestEqualRefusalsBecomeOneRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTrail(t, 0)
		for i := range 1000 { // each call comes on a connection of its own
			a.Record(t.Context(), refusal(fmt.Sprint("10.0.0.1:", 2000+i)))
		}
		if lines := a.lines(); len(lines) != 1 || !strings.Contains(lines[0], "count=1") {
			t.Errorf("at once the log has %q", lines)
		}
		time.Sleep(11 * time.Second)
		if lines := a.lines(); len(lines) != 2 || !strings.Contains(lines[1], "count=999") {
			t.Errorf("after the window the log has %q", lines)
		}
		time.Sleep(time.Minute)
		a.Record(t.Context(), refusal("10.0.0.1:99"))
		if lines := a.lines(); len(lines) != 3 || !strings.HasSuffix(lines[2], "count=1") {
			t.Errorf("a minute later the log has %q", lines)
		}
		if n := a.counts.refused[1].Load(); n != 1001 {
			t.Errorf("%d refusals are counted", n)
		}
	})
}

func TestRefusalsOfManyCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTrail(t, 0)
		const flood = 100_000
		before := heap()
		for i := range flood {
			r := refusal(fmt.Sprint("2001:db8::", i))
			r.Producer, r.Cause = fmt.Sprint("producer", i), strings.Repeat("x", 1000)
			a.Record(t.Context(), r)
		}
		if grown := heap() - before; grown > 4<<20 {
			t.Errorf("the flood holds %d bytes", grown)
		}
		time.Sleep(11 * time.Second)
		lines := a.lines()
		if last := lines[len(lines)-1]; len(lines) != 101 || !strings.Contains(last, "count=99900") {
			t.Errorf("the log has %d lines, the last is %q", len(lines), last)
		}
		if n := a.counts.refused[1].Load(); n != flood {
			t.Errorf("%d refusals are counted", n)
		}
	})
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestEqualSessionsBecomeOneRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTrail(t, 0)
		for i := range 10_800 {
			a.Record(t.Context(), audit.Record{
				By: "token:anna", Kind: access.Token, From: fmt.Sprint("10.0.0.1:", 2000+i), Via: audit.Console,
				Action: audit.Login, Result: audit.Done,
			})
		}
		time.Sleep(11 * time.Second)
		if lines := a.lines(); len(lines) != 2 || !strings.Contains(lines[1], "count=10799") {
			t.Errorf("the log has %d lines, the last is %q", len(lines), lines[len(lines)-1])
		}
		time.Sleep(time.Minute)
		for i := range audit.MaxCallers + 5 {
			a.Record(t.Context(), audit.Record{
				By: fmt.Sprint("jwt:", i), Kind: access.JWT, Action: audit.Login, Result: audit.Done,
			})
		}
		time.Sleep(11 * time.Second)
		lines := a.lines()
		last := lines[len(lines)-1]
		if !strings.Contains(last, "action=login result=done") || !strings.Contains(last, "count=5") {
			t.Errorf("of many people the last line is %q", last)
		}
	})
}

// Each right makes records in numbers, and all records of higher rights stay.
func TestLowRightsPushNoRecordOut(t *testing.T) {
	const keep = 10
	rights := []audit.Record{ // from the highest right on
		{Action: audit.Discard, Result: audit.Done},
		{Action: audit.Retry, Result: audit.Done},
		{Action: audit.Login, Result: audit.Done},
		{Action: "/Admin/DiscardMessages", Result: audit.Refused, Refusal: audit.ByRole},
		{Action: "/Admin/DiscardMessages", Result: audit.Refused, Refusal: audit.ByIdentity},
	}
	for low := 1; low < len(rights); low++ {
		a := newTrail(t, keep)
		s := store(t, "redis://"+miniredis.RunT(t).Addr())
		a.Connect(s)
		for i, high := range rights[:low] {
			high.By, high.From = "anna", fmt.Sprint("10.0.0.", i)
			a.Record(t.Context(), high)
		}
		for i := range 5 * keep {
			r := rights[low]
			r.By, r.From = fmt.Sprint("mallory", i), fmt.Sprint("10.0.1.", i)
			a.Record(t.Context(), r)
		}
		a.close(t)
		if kept := a.list(t, audit.Query{By: "anna"}); len(kept) != low {
			t.Errorf("%+v in numbers leave %d of %d records of higher rights", rights[low], len(kept), low)
		}
	}
}

func TestChangesAreNeverJoined(t *testing.T) {
	a := newTrail(t, 10)
	a.Connect(store(t, "redis://"+miniredis.RunT(t).Addr()))
	for range 5 {
		a.Record(t.Context(), audit.Record{Action: audit.Discard, Names: []string{"orders/1"}, Result: audit.Done})
	}
	a.close(t)
	if records := a.list(t, audit.Query{}); len(records) != 5 || len(a.lines()) != 5 {
		t.Errorf("%d records are kept, and %d logged", len(records), len(a.lines()))
	}
}

// Redis bounds each stream.
func TestStreamsAreBounded(t *testing.T) {
	redis := servers.Redis(t)
	a := newTrail(t, 100)
	s := store(t, redis.URL())
	a.Connect(s)
	a.Record(t.Context(), audit.Record{By: "anna", Action: audit.Discard, Names: []string{"orders/1"}, Result: audit.Done})
	texts := slices.Repeat([]string{`{"result":"refused"}`}, 10_000)
	for range 10 {
		if stored, err := s.AppendAudit(t.Context(), audit.Refusals, texts, 100); err != nil || stored != len(texts) {
			t.Fatalf("%d are stored, %v", stored, err)
		}
	}
	a.close(t)
	if records := a.list(t, audit.Query{Result: audit.Done}); len(records) != 1 || records[0].By != "anna" {
		t.Errorf("of the changes %+v are kept", records)
	}
	kept := len(a.list(t, audit.Query{Result: audit.Refused}))
	if kept < 100 || kept > 300 { // Redis removes whole nodes of a stream
		t.Errorf("%d of 100,000 refusals are kept, want about 100", kept)
	}
}

// Record fills what the caller of a change leaves to its context.
func TestRecordsTakeCallerFromContext(t *testing.T) {
	a := newTrail(t, 10)
	a.Connect(store(t, "redis://"+miniredis.RunT(t).Addr()))
	ctx := access.With(t.Context(), access.Identity{Kind: access.JWT, Name: "jwt:anna"})
	ctx = audit.WithOrigin(ctx, audit.Origin{Via: audit.Console, From: "10.1.2.3:51234"})
	names := make([]string, 250)
	for i := range names {
		names[i] = fmt.Sprint("orders/", i)
	}
	a.Record(ctx, audit.Record{
		Action: audit.Discard, Producer: "orders", Names: names, Filter: "state=DEAD", Reason: "test orders",
		Result: audit.Done,
	})
	a.Record(t.Context(), audit.Record{
		Action: audit.Reload, Via: audit.ConfigReload, Result: audit.Failed, Cause: "no file",
	})
	a.close(t)
	kept := a.list(t, audit.Query{})
	if len(kept) != 2 {
		t.Fatalf("%d records are kept", len(kept))
	}
	reload, change := kept[0], kept[1]
	if len(change.Names) != 100 || change.Names[99] != "orders/99" {
		t.Errorf("the record names %d messages: %v", len(change.Names), change.Names)
	}
	if change.ID == "" || time.Since(change.Time) > time.Minute {
		t.Errorf("its id is %q, its time %v", change.ID, change.Time)
	}
	change.Names, change.Time, change.ID = nil, time.Time{}, ""
	if text, _ := json.Marshal(change); string(text) != `{"time":"0001-01-01T00:00:00Z","by":"jwt:anna","kind":"jwt",`+
		`"from":"10.1.2.3:51234","via":"console","action":"discard","producer":"orders","filter":"state=DEAD",`+
		`"count":250,"reason":"test orders","result":"done","instance":"host-1"}` {
		t.Errorf("the record is %s", text)
	}
	if reload.Kind != access.Anonymous || reload.Via != audit.ConfigReload || reload.Cause != "no file" {
		t.Errorf("the record of the reload is %+v", reload)
	}
	// The log names every message, 100 in a line.
	for _, name := range names {
		if !strings.Contains(a.log.String(), name) {
			t.Errorf("the log lacks %s", name)
		}
	}
	if lines := a.lines(); len(lines) != 4 {
		t.Errorf("the log has %d lines", len(lines))
	}
}

func TestSecretsStayOutOfRecords(t *testing.T) {
	a := newTrail(t, 10)
	a.Connect(store(t, "redis://"+miniredis.RunT(t).Addr()))
	const secret = "s3cr3t"
	for _, cause := range []string{
		"cannot reach amqp://user:" + secret + "@broker:5672/", "cannot reach redis://:" + secret + "/p@ss@redis:6379",
		"authorization: Bearer " + secret, "Authorization: basic " + secret, "bearer: " + secret,
		"the token eyJhbGciOiJSUzI1NiJ9." + secret + ".x-y_z is not valid",
		"the token mh_" + secret + " is damaged", "GET /login?code=" + secret + "&state=1", "sentinel_password=" + secret,
	} {
		a.Record(t.Context(), audit.Record{
			Action: "reload", Result: audit.Failed, Cause: cause, Reason: cause, Filter: cause, By: cause,
		})
	}
	a.close(t)
	kept := fmt.Sprint(a.list(t, audit.Query{}))
	for where, text := range map[string]string{"the log": a.log.String(), "Redis": kept} {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the secret: %s", where, text)
		}
		if strings.Count(text, "xxxxx") != 9*4 {
			t.Errorf("%s hides %d secrets", where, strings.Count(text, "xxxxx"))
		}
	}
	if !strings.Contains(kept, "cannot reach amqp://xxxxx@broker:5672/") {
		t.Errorf("the host of the broker is hidden too: %s", kept)
	}
}

func TestTextsStayOnOneLine(t *testing.T) {
	a := newTrail(t, 10)
	a.Connect(store(t, "redis://"+miniredis.RunT(t).Addr()))
	const forged = "x\nlevel=AUDIT msg=\"forged\"\r\x1b[2J\u202e"
	long := strings.Repeat("ö", 100_000)
	a.Record(t.Context(), audit.Record{
		By: forged, From: forged, Action: forged, Producer: forged, Names: []string{forged}, Filter: forged,
		Reason: forged, Cause: forged, Result: audit.Done,
	})
	a.Record(t.Context(), audit.Record{
		By: long, From: long, Action: audit.Action(long), Names: slices.Repeat([]string{long[:300]}, 1000), Filter: long,
		Reason: long, Result: audit.Done,
	})
	a.close(t)
	if lines := a.lines(); len(lines) != 11 {
		t.Errorf("the log has %d lines", len(lines))
	}
	kept := a.list(t, audit.Query{})
	text, _ := json.Marshal(kept[1])
	if forged := string(text); strings.Contains(forged, `\n`+`level`) && !strings.Contains(forged, `\\nlevel`) ||
		strings.ContainsAny(forged, "\u202e\x1b") || strings.Contains(kept[1].Reason, "\n") {
		t.Errorf("the kept record is %s", forged)
	}
	if text, _ = json.Marshal(kept[0]); len(text) > 10_000 {
		t.Errorf("a record has %d bytes", len(text))
	}
}

func TestAuditLinesAreAboveEveryLevel(t *testing.T) {
	var log servers.Log
	options := &slog.HandlerOptions{Level: slog.LevelError, ReplaceAttr: audit.LevelName}
	a := audit.New(audit.Config{Logger: slog.New(slog.NewJSONHandler(&log, options)), Metrics: &counts{}})
	a.Record(t.Context(), audit.Record{By: "anna", Action: audit.Retry, Names: []string{"orders/1"}, Result: audit.Done})
	must.Succeed(t, a.Close(t.Context()))
	var line map[string]any
	if err := json.Unmarshal([]byte(log.String()), &line); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	delete(line, "time")
	if text, _ := json.Marshal(line); string(text) != `{"action":"retry","by":"anna","count":1,"level":"AUDIT",`+
		`"msg":"audit: change made","names":["orders/1"],"result":"done"}` {
		t.Errorf("the line is %s", text)
	}
}

// While Redis hangs, no caller waits, and what waits is stored later.
func TestRecordsWaitForRedis(t *testing.T) {
	redis := servers.Redis(t)
	a := newTrail(t, 1000)
	a.Connect(store(t, redis.URL()))
	redis.Kill()
	for range 300 {
		a.Record(t.Context(), audit.Record{Action: audit.Discard, Result: audit.Done})
	}
	if n := len(a.lines()); n != 300 {
		t.Errorf("the log has %d lines", n)
	}
	redis.Start()
	servers.Eventually(t, 30*time.Second, "the records are stored", func() bool {
		page, err := a.List(t.Context(), audit.Query{Limit: 1000})
		return err == nil && len(page.Records) >= 300
	})
	if n := a.counts.dropped.Load(); n != 0 {
		t.Errorf("%d are dropped", n)
	}
}

func TestDroppedRecordsAreCounted(t *testing.T) {
	a := newTrail(t, 10)
	for range 1500 { // Redis was never reached
		a.Record(t.Context(), audit.Record{Action: audit.Discard, Result: audit.Done})
	}
	if n := a.counts.dropped.Load(); n != 500 {
		t.Errorf("%d are dropped, want all beyond 1,000 places", n)
	}
	if _, err := a.List(t.Context(), audit.Query{Limit: 1}); err == nil {
		t.Error("a trail without Redis is listed as empty")
	}
	a.close(t)
	if n := a.counts.dropped.Load(); n != 1500 {
		t.Errorf("%d are dropped at the end", n)
	}
	if !strings.Contains(a.log.String(), "audit records dropped") || len(a.lines()) != 1500 {
		t.Errorf("the log has %d lines of records", len(a.lines()))
	}
}

// Refusals that were joined when the coordinator stops are written, too.
func TestCloseStoresWhatWaits(t *testing.T) {
	a := newTrail(t, 1000)
	a.Connect(store(t, "redis://"+miniredis.RunT(t).Addr()))
	for range 50 {
		a.Record(t.Context(), refusal("10.0.0.1:1"))
	}
	for range 250 {
		a.Record(t.Context(), audit.Record{Action: audit.Retry, Result: audit.Done})
	}
	a.close(t)
	var refused int64
	for _, r := range a.list(t, audit.Query{Result: audit.Refused}) {
		refused += r.Count
	}
	if changes := len(a.list(t, audit.Query{Result: audit.Done})); changes != 250 || refused != 50 {
		t.Errorf("%d changes and %d refusals are kept", changes, refused)
	}
	a.Record(t.Context(), audit.Record{Action: audit.Discard, Result: audit.Done})
	if n := a.counts.dropped.Load(); n != 1 {
		t.Errorf("%d records after the end are dropped, want 1", n)
	}
}

func TestListSelectsNewestFirst(t *testing.T) {
	a := newTrail(t, 1000)
	s := store(t, "redis://"+miniredis.RunT(t).Addr())
	a.Connect(s)
	var want []string
	for i := range 20 {
		stream, result := audit.Changes, audit.Done
		if i%3 == 0 {
			stream, result = audit.Refusals, audit.Refused
		}
		r := audit.Record{By: fmt.Sprint("by", i%2), Action: audit.Retry, Reason: fmt.Sprint(i), Result: result}
		text, _ := json.Marshal(r)
		if _, err := s.AppendAudit(t.Context(), stream, []string{string(text)}, 1000); err != nil {
			t.Fatal(err)
		}
		want = append([]string{r.Reason}, want...)
		last := time.Now()
		for time.Since(last) < time.Millisecond { // the ids of two streams compare by the millisecond
			runtime.Gosched()
		}
	}
	reasons := func(q audit.Query) (got []string) {
		for _, r := range a.list(t, q) {
			got = append(got, r.Reason)
		}
		return got
	}
	if got := reasons(audit.Query{}); !slices.Equal(got, want) {
		t.Errorf("all are %v, want %v", got, want)
	}
	for what, c := range map[string]struct {
		query audit.Query
		want  int
	}{
		"refusals": {audit.Query{Result: audit.Refused}, 7}, "changes": {audit.Query{Result: audit.Done}, 13},
		"failures": {audit.Query{Result: audit.Failed}, 0}, "of one": {audit.Query{By: "by1"}, 10},
		"of another action": {audit.Query{Action: "discard"}, 0}, "of an action": {audit.Query{Action: "etr"}, 20},
		"later": {audit.Query{Since: time.Now().Add(time.Hour)}, 0},
		"since": {audit.Query{Since: time.Now().Add(-time.Hour)}, 20},
	} {
		if got := reasons(c.query); len(got) != c.want {
			t.Errorf("%s: %v, want %d", what, got, c.want)
		}
	}
	for _, token := range []string{"x", "1-1", ".+", "1-1.1-1.1", "-.", "99999999999999999999-1....", "....x", "....."} {
		if _, err := a.List(t.Context(), audit.Query{Limit: 1, Token: token}); !errors.Is(err, audit.ErrBadToken) {
			t.Errorf("the token %q: %v", token, err)
		}
	}
}
