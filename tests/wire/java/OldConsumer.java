import java.util.Arrays;
import java.util.Base64;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/**
 * Reads topics from their beginning as the only member of a group, commits, and prints each record
 * as "topic offset key value", in base64 after a "+" and "-" for null. It speaks only what the
 * clients of Kafka 0.9 and 0.10 have in common.
 *
 * <p>Arguments: bootstrap servers, group, how many records there are in all, topics.
 */
public final class OldConsumer {
    private static final String DESERIALIZER =
            "org.apache.kafka.common.serialization.ByteArrayDeserializer";
    private static final long DEADLINE_MS = 30_000;

    private OldConsumer() {}

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", DESERIALIZER);
        settings.put("value.deserializer", DESERIALIZER);
        int missing = Integer.parseInt(arguments[2]);
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(Arrays.asList(arguments).subList(3, arguments.length));
        while (missing > 0 && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(100)) {
                System.out.println(record.topic() + " " + record.offset() + " "
                        + encode(record.key()) + " " + encode(record.value()));
                missing--;
            }
        }
        consumer.commitSync();
        consumer.close();
    }

    private static String encode(byte[] field) {
        return field == null ? "-" : "+" + Base64.getEncoder().encodeToString(field);
    }
}
