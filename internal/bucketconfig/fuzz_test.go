package bucketconfig_test

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// FuzzDecode holds that any bytes either decode into a record that may be encoded and decoded again, or are refused.
func FuzzDecode(f *testing.F) {
	data, err := bucketconfig.Encode(validRecord())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) { decodeTwice(t, data) })
}

// FuzzDecodeText does the same behind the compression, which random bytes seldom pass.
func FuzzDecodeText(f *testing.F) {
	text, err := json.Marshal(validRecord())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"schema":1,"limits":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var buffer bytes.Buffer
		writer, err := flate.NewWriter(&buffer, flate.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
		decodeTwice(t, buffer.Bytes())
	})
}

func decodeTwice(t *testing.T, data []byte) {
	record, err := bucketconfig.Decode(data)
	if err != nil {
		return
	}
	again, err := bucketconfig.Encode(record)
	if err != nil {
		t.Fatalf("a record that was read can't be written: %v", err)
	}
	second, err := bucketconfig.Decode(again)
	if err != nil {
		t.Fatalf("a record that was written can't be read: %v", err)
	}
	third, err := bucketconfig.Encode(second)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, third) {
		t.Fatal("a record changes on the way")
	}
}

// FuzzDecodeHeartbeat holds that any bytes either decode into a heartbeat that comes back equal, or are refused.
func FuzzDecodeHeartbeat(f *testing.F) {
	data, err := bucketconfig.EncodeHeartbeat(validHeartbeat())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		heartbeat, err := bucketconfig.DecodeHeartbeat(data)
		if err != nil {
			return
		}
		again, err := bucketconfig.EncodeHeartbeat(heartbeat)
		if err != nil {
			return // JSON escapes may make it longer than it was
		}
		second, err := bucketconfig.DecodeHeartbeat(again)
		if err != nil {
			t.Fatal(err)
		}
		if len(second.Applied) != len(heartbeat.Applied) || !reflect.DeepEqual(second.Refused, heartbeat.Refused) && len(heartbeat.Refused) > 0 {
			t.Fatal("a heartbeat changes on the way")
		}
	})
}
