package pages

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/console/formtoken"
)

// tally is the result of a count before a change.
type tally struct {
	// Count is the number that was counted; at most as many are changed. AtLeast says that the count is incomplete.
	Count   int64
	AtLeast bool
	// Counted is the time of the count; zero before. Anything that arrived or came of age since then is excluded, or new
	// entries would replace counted ones that are gone.
	Counted time.Time
}

// encode serializes a selection and its tally for a form. No two results are equal, so each form has its own token.
func (t tally) encode(selection string) string {
	return selection + "&" + url.Values{
		"count": {strconv.FormatInt(t.Count, 10)}, "counted": {strconv.FormatInt(t.Counted.UnixMilli(), 10)},
		"at_least": {strconv.FormatBool(t.AtLeast)}, "once": {rand.Text()},
	}.Encode()
}

// decodeTally parses the result of encode. The request has the selection.
func decodeTally(text string) (t tally, selection *http.Request, err error) {
	values, err := url.ParseQuery(text)
	millis, badTime := strconv.ParseInt(values.Get("counted"), 10, 64)
	count, badCount := strconv.ParseInt(values.Get("count"), 10, 64)
	atLeast, badAtLeast := strconv.ParseBool(values.Get("at_least"))
	return tally{count, atLeast, time.UnixMilli(millis)}, &http.Request{Form: values},
		errors.Join(err, badTime, badCount, badAtLeast)
}

// form shows the number before a change, and asks for a reason.
type form struct {
	// Hidden is the counted selection, and Token proves that the caller has seen its number.
	Hidden, Token, Reason, Problem string
	// Verb names the change, Target is where the form is sent, and Back the list.
	Verb, Target, Back string
	// Lose is the text of a box to tick before messages may be lost; empty: none.
	Lose string
}

// newForm is the form of a selection that was counted just now.
func (p *Pages) newForm(r *http.Request, hidden string) form {
	return form{Hidden: hidden, Token: p.tokens.Token(signed(r, hidden))}
}

// readForm reads the form that a caller sends.
func readForm(r *http.Request) form {
	return form{
		Hidden: r.PostFormValue("selection"), Token: r.PostFormValue("token"),
		Reason: strings.TrimSpace(r.PostFormValue("reason")),
	}
}

// valid says whether this console has made the form for this caller, lately, and the form was not used yet.
func (p *Pages) valid(r *http.Request, f form, counted time.Time) bool {
	return p.tokens.Check(signed(r, f.Hidden), f.Token, counted.Add(formtoken.Lifetime), time.Now()) == nil
}

// use marks the form as used, and returns false if the form was used before.
func (p *Pages) use(f form, counted time.Time) bool {
	return p.tokens.Use(f.Token, counted.Add(formtoken.Lifetime), time.Now())
}

// withoutReason is the form again, for a caller who gave no reason.
func (f form) withoutReason(noun string) form {
	f.Problem = "Give a reason: it is logged with each " + noun + "'s name."
	return f
}

// shown is the page with the form.
func (f form) shown(page string, data any) answer {
	a := answer{page: page, title: f.Verb, data: data}
	if f.Problem != "" {
		a.status = http.StatusBadRequest
	}
	return a
}

// invalidForm is the answer to a form that is not valid, or was used before.
func invalidForm() answer {
	return trouble(http.StatusForbidden, "Nothing was changed", formtoken.ErrInvalid.Error())
}
