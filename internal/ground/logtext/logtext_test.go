package logtext

import "testing"

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
				t.Errorf("in %q it is %q, want %q", language, got, want)
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
