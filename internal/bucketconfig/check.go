package bucketconfig

import (
	"fmt"
	"net/textproto"
	"unicode/utf8"
)

// headerName wants the canonical form, as Go keys headers by it: another spelling would never be found.
func headerName(field, name string) error {
	if err := text(field, name, 1, MaxString); err != nil {
		return err
	}
	if canonical := textproto.CanonicalMIMEHeaderKey(name); canonical != name {
		return fmt.Errorf("%s: %q is not the canonical %q", field, name, canonical)
	}
	return nil
}

func text(field, value string, least, most int) error {
	if len(value) < least || len(value) > most {
		return fmt.Errorf("%s: %d bytes are outside %d..%d", field, len(value), least, most)
	}
	if !utf8.ValidString(value) {
		return fmt.Errorf("%s: %q is not UTF-8", field, value)
	}
	return nil
}

func oneOf(field, value string, allowed ...string) error {
	for _, one := range allowed {
		if value == one {
			return nil
		}
	}
	if len(value) > 64 {
		value = value[:64]
	}
	return fmt.Errorf("%s: %q is none of %q", field, value, allowed)
}

func count(field string, got, most int) error {
	if got > most {
		return fmt.Errorf("%s: %d are more than %d", field, got, most)
	}
	return nil
}

func inRange(field string, value, least, most int64) error {
	if value < least || value > most {
		return fmt.Errorf("%s: %d is outside %d..%d", field, value, least, most)
	}
	return nil
}

func atLeast(field string, value, least int64) error {
	if value < least {
		return fmt.Errorf("%s: %d is below %d", field, value, least)
	}
	return nil
}

func within(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

func each[T any](field string, items []T, check func(*T) error) error {
	for i := range items {
		if err := check(&items[i]); err != nil {
			return fmt.Errorf("%s[%d]: %w", field, i, err)
		}
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
