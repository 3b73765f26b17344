package logtext

import (
	"errors"
	"testing"
)

func TestTextsAreFixedInEachLanguage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text             Text
		english, chinese string
	}{
		{AlreadyHandled, "event already handled, duplicate ignored", "事件已处理，忽略重复消息"},
		{UnsupportedType, "unsupported event type", "事件类型不支持"},
		{SendingFailed, "sending failed", "消息发送失败"},
		{ConsumingFailed, "consuming failed", "消息消费失败"},
	} {
		for language, want := range map[Language]string{"": c.english, English: c.english, Chinese: c.chinese} {
			if got := c.text.In(language); got != want {
				t.Errorf("in %q the text is %q, want %q", language, got, want)
			}
			line := c.text.Line(language, "the message waits")
			if language != Chinese {
				want += "; the message waits"
			}
			if line != want {
				t.Errorf("in %q the line is %q, want %q", language, line, want)
			}
		}
	}
}

func TestUnknownLanguagesAreRefused(t *testing.T) {
	t.Parallel()
	for language, known := range map[Language]bool{"": true, "en": true, "zh": true, "de": false, "EN": false} {
		if err := language.Check(); (err == nil) != known {
			t.Errorf("%q: %v", language, err)
		}
	}
}

func TestContextCarriesTheLanguage(t *testing.T) {
	t.Parallel()
	if got := From(t.Context()); got.Check() != nil || AlreadyHandled.In(got) != AlreadyHandled.english {
		t.Errorf("without With the language is %q", got)
	}
	if got := From(With(t.Context(), Chinese)); got != Chinese {
		t.Errorf("the language is %q, want %q", got, Chinese)
	}
}

type unsupported struct{ error }

func (unsupported) UnsupportedType() {}

func TestUnsupportedTypeHasItsOwnText(t *testing.T) {
	t.Parallel()
	err := errors.New("no database")
	if got := OfFailure(err); got != ConsumingFailed {
		t.Errorf("the text of %v is %v", err, got)
	}
	if got := OfFailure(errors.Join(err, unsupported{err})); got != UnsupportedType {
		t.Errorf("the text of an unsupported type is %v", got)
	}
}
