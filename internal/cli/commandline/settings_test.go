package commandline

import "testing"

func TestEveryKeyIsAFlag(t *testing.T) {
	t.Parallel()
	flags := NewConfigFlags(nil)
	if given := flags.Given(); len(given) != 0 {
		t.Errorf("nothing was typed, but %v is given", given)
	}
	for i, k := range flags.keys {
		field := flags.fields.Elem().Type().Field(i)
		if name := field.Tag.Get("name"); name != k.Name {
			t.Errorf("the flag of %s is called %q", k.Name, name)
		}
	}
}
