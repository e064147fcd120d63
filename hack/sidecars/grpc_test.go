package sidecars_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// grpcApp is grpc's own service for tests, as far as specs call it.
type grpcApp struct {
	grpc_testing.UnimplementedTestServiceServer
}

func startGRPC() string {
	GinkgoHelper()
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, grpcApp{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	go func() { _ = server.Serve(listener) }()
	DeferCleanup(server.Stop)
	return listener.Addr().String()
}

// UnaryCall answers what was sent, in header and trailer what the client's metadata said.
func (grpcApp) UnaryCall(ctx context.Context, request *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	sent, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-header", strings.Join(sent.Get("x-sent"), ",")))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-trailer-bin", "\x00\xff"))
	return &grpc_testing.SimpleResponse{Payload: request.Payload}, nil
}

// FullDuplexCall answers each message as it comes.
func (grpcApp) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: request.Payload}); err != nil {
			return err
		}
	}
}

// StreamingInputCall counts what comes.
func (grpcApp) StreamingInputCall(stream grpc_testing.TestService_StreamingInputCallServer) error {
	size := 0
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: int32(size)})
		}
		if err != nil {
			return err
		}
		size += len(request.Payload.Body)
	}
}

func payload(size int) *grpc_testing.Payload {
	return &grpc_testing.Payload{Body: []byte(strings.Repeat("x", size))}
}

var _ = Describe("grpc-go", func() {
	connect := func(options ...grpc.DialOption) grpc_testing.TestServiceClient {
		GinkgoHelper()
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
		conn, err := grpc.NewClient("passthrough:///"+sharedGRPC.addr, options...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(conn.Close)
		return grpc_testing.NewTestServiceClient(conn)
	}
	as := func(ctx context.Context, header, key string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, header, key)
	}
	expectRefused := func(err error) {
		GinkgoHelper()
		Expect(status.Code(err)).To(Equal(codes.ResourceExhausted), "%v", err)
		Expect(status.Convert(err).Message()).To(MatchRegexp(`^the limit is spent; retry in 3[56]\d\d s$`))
	}

	It("calls with metadata and trailers, gets the app's own errors, and reads why it is refused", func(ctx SpecContext) {
		client := connect()
		called := as(metadata.AppendToOutgoingContext(ctx, "x-sent", "1", "x-sent", "2"), keyHeader, unique("unary"))
		var header, trailer metadata.MD
		response, err := client.UnaryCall(called, &grpc_testing.SimpleRequest{Payload: payload(3 << 20)}, grpc.Header(&header), grpc.Trailer(&trailer))
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Payload.Body).To(HaveLen(3 << 20))
		Expect(header.Get("x-header")).To(Equal([]string{"1,2"}))
		Expect(header.Get("ratelimit")).To(HaveExactElements(HavePrefix(`"clients/hourly";r=1`)))
		Expect(trailer.Get("x-trailer-bin")).To(Equal([]string{"\x00\xff"}))

		_, err = client.UnimplementedCall(called, &grpc_testing.Empty{})
		Expect(status.Code(err)).To(Equal(codes.Unimplemented), "the app's answer, of trailers only")

		_, err = client.UnaryCall(called, &grpc_testing.SimpleRequest{}, grpc.Trailer(&trailer))
		expectRefused(err)
		Expect(trailer.Get("grpc-retry-pushback-ms")).To(HaveExactElements(MatchRegexp(`^3[56]\d{5}$`)))
	})

	It("streams both ways at the cost of one verdict, and is refused while it sends", func(ctx SpecContext) {
		client := connect()
		key := unique("stream")
		stream, err := client.FullDuplexCall(as(ctx, keyHeader, key))
		Expect(err).NotTo(HaveOccurred())
		for range 100 {
			Expect(stream.Send(&grpc_testing.StreamingOutputCallRequest{Payload: payload(1000)})).To(Succeed())
			response, err := stream.Recv()
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Payload.Body).To(HaveLen(1000))
		}
		Expect(stream.CloseSend()).To(Succeed())
		_, err = stream.Recv()
		Expect(err).To(MatchError(io.EOF))

		upload, err := client.StreamingInputCall(as(ctx, keyHeader, key))
		Expect(err).NotTo(HaveOccurred())
		for range 16 {
			Expect(upload.Send(&grpc_testing.StreamingInputCallRequest{Payload: payload(1 << 20)})).To(Succeed())
		}
		summary, err := upload.CloseAndRecv()
		Expect(err).NotTo(HaveOccurred())
		Expect(summary.AggregatedPayloadSize).To(BeEquivalentTo(16 << 20))

		refused, err := client.StreamingInputCall(as(ctx, keyHeader, key))
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			return refused.Send(&grpc_testing.StreamingInputCallRequest{Payload: payload(1 << 20)})
		}, patience, "1us").Should(MatchError(io.EOF), "it learns that the stream is over")
		_, err = refused.CloseAndRecv()
		expectRefused(err)

		duplex, err := client.FullDuplexCall(as(ctx, keyHeader, key))
		Expect(err).NotTo(HaveOccurred())
		_, err = duplex.Recv()
		expectRefused(err)
	})

	It("retries after the pushback, and then passes", func(ctx SpecContext) {
		// Without the pushback it would try again within 10 ms, and fail.
		client := connect(grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
			"maxAttempts": 2, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`))
		called := as(ctx, pacedHeader, unique("paced"))
		_, err := client.UnaryCall(called, &grpc_testing.SimpleRequest{})
		Expect(err).NotTo(HaveOccurred())
		begin := time.Now()
		_, err = client.UnaryCall(called, &grpc_testing.SimpleRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Since(begin)).To(BeNumerically(">", pace/2), "it was refused first")
	})
})
