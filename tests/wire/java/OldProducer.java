import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/**
 * Sends the records on standard input, "key value" in base64 after a "+" and "-" for null, to
 * partition 0 of every topic named, with the codec before it; prints "topic offset" for each that is
 * acknowledged. It speaks only what the clients of Kafka 0.8.2, 0.9 and 0.10 have in common.
 *
 * <p>Arguments: bootstrap servers, then codec, topic, codec, topic...
 */
public final class OldProducer {
    private static final String SERIALIZER =
            "org.apache.kafka.common.serialization.ByteArraySerializer";

    private OldProducer() {}

    public static void main(String[] arguments) throws Exception {
        List<byte[][]> records = readRecords();
        for (int index = 1; index < arguments.length; index += 2) {
            send(arguments[0], arguments[index], arguments[index + 1], records);
        }
    }

    private static void send(
            String bootstrap, String codec, String topic, List<byte[][]> records) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("acks", "all");
        // Long enough that records are sent in sets and not one by one.
        settings.put("linger.ms", "50");
        settings.put("key.serializer", SERIALIZER);
        settings.put("value.serializer", SERIALIZER);
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (byte[][] record : records) {
            sent.add(producer.send(new ProducerRecord<>(topic, 0, record[0], record[1])));
        }
        for (Future<RecordMetadata> future : sent) {
            System.out.println(topic + " " + future.get().offset());
        }
        producer.close();
    }

    private static List<byte[][]> readRecords() {
        List<byte[][]> records = new ArrayList<>();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNext()) {
            records.add(new byte[][] {decode(lines.next()), decode(lines.next())});
        }
        return records;
    }

    private static byte[] decode(String field) {
        return field.equals("-") ? null : Base64.getDecoder().decode(field.substring(1));
    }
}
