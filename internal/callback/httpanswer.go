package callback

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"

	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const jsonType = "application/json"

// expected says what the answer of a call must be.
var expected = map[string]string{
	"Confirm":        `{"confirmations":[{"id":"...","verdict":"VERDICT_COMMITTED"}]}`,
	"DeleteBusiness": `{}`,
}

// malformed is the error of an answer with status 200 that has not the form of the contract. One message may be the
// reason: many frameworks answer an error with a page and 200.
func malformed(method, format string, values ...any) error {
	return &httpError{
		code: codes.Internal,
		said: fmt.Sprintf("the answer is not in the contract's form: "+format, values...) +
			"; answer with 200, Content-Type: application/json and " + expected[method],
	}
}

// checkJSON refuses an answer that is not JSON with an object.
func checkJSON(answer *http.Response, body []byte, method string) error {
	media, parameters, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	charset := parameters["charset"]
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return malformed(method, "the body is empty")
	case err != nil || media != jsonType || charset != "" && !strings.EqualFold(charset, "utf-8"):
		return malformed(method, "its content type is %.60q", answer.Header.Get("Content-Type"))
	case answer.Header.Get("Content-Encoding") != "": // a body in clear contradicts it, and a doubt is no verdict
		return malformed(method, "its content encoding is %.60q", answer.Header.Get("Content-Encoding"))
	case bytes.HasPrefix(body, []byte("\ufeff")):
		return malformed(method, "the body begins with a byte order mark")
	case !json.Valid(body):
		return malformed(method, "the body is not JSON")
	}
	if form := formOf(body); form != "an object" {
		return malformed(method, "the body is %s", form)
	}
	return nil
}

// formOf names the form of valid JSON.
func formOf(body []byte) string {
	switch bytes.TrimSpace(body)[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a text"
	case 't', 'f':
		return "a bare boolean, which does not say of which message"
	case 'n':
		return "null"
	}
	return "a number"
}

// readConfirmations reads an answer to Confirm that checkJSON has let pass. Fields that are not known are skipped. A
// doubt is never a verdict: one item of another form makes the whole answer an error.
func readConfirmations(body []byte) (*msghandlerv1.ConfirmResponse, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	answer, found := &msghandlerv1.ConfirmResponse{}, false
	var store *string
	err := readObject(d, func(name string) error {
		switch name {
		case "confirmations":
		case "markerStore":
			return readText(d, name, &store)
		default:
			return skip(d)
		}
		if found {
			return errors.New("the field confirmations is there twice")
		}
		found = true
		return readList(d, func() error {
			confirmation, err := readConfirmation(d)
			answer.Confirmations = append(answer.Confirmations, confirmation)
			return err
		})
	})
	switch {
	case err != nil:
		return nil, malformed("Confirm", "%s", err)
	case !found:
		return nil, malformed("Confirm", "there is no field confirmations")
	}
	if store != nil {
		answer.MarkerStore = *store
	}
	return answer, nil
}

func readConfirmation(d *json.Decoder) (*msghandlerv1.Confirmation, error) {
	var id, verdict *string
	err := readObject(d, func(name string) error {
		switch name {
		case "id":
			return readText(d, name, &id)
		case "verdict":
			return readText(d, name, &verdict)
		}
		return skip(d)
	})
	switch {
	case err != nil:
		return nil, err
	case id == nil || verdict == nil:
		return nil, errors.New("a confirmation has no id or no verdict")
	}
	value := msghandlerv1.Verdict_value[*verdict]
	if value == 0 {
		return nil, fmt.Errorf("%.40q is no verdict, unlike VERDICT_COMMITTED, VERDICT_ROLLED_BACK, VERDICT_UNKNOWN and "+
			"VERDICT_UNAVAILABLE", *verdict)
	}
	return &msghandlerv1.Confirmation{Id: *id, Verdict: msghandlerv1.Verdict(value)}, nil
}

// readObject reads an object, whose fields the function reads.
func readObject(d *json.Decoder, field func(name string) error) error {
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return errors.New("a confirmation is no object with id and verdict")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if err := field(name.(string)); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// readList reads the list of confirmations, whose items the function reads.
func readList(d *json.Decoder, item func() error) error {
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		return errors.New("the field confirmations is no list")
	}
	for d.More() {
		if err := item(); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// readText reads a field once: two values would contradict each other.
func readText(d *json.Decoder, name string, into **string) error {
	if *into != nil {
		return fmt.Errorf("the field %s is there twice", name)
	}
	token, err := d.Token()
	text, is := token.(string)
	if err != nil || !is {
		return fmt.Errorf("the field %s is no text", name)
	}
	*into = &text
	return nil
}

func skip(d *json.Decoder) error {
	var value json.RawMessage
	return d.Decode(&value)
}
